//! The life of one referenced object's watch, as a function from (state, input) to (state, effect).
//! Pure.
//!
//! It owns no thread, lock or clock, so a simulation can drive it, and every race of the originals
//! (OC-27..OC-29) is a story of a test.

/// The number of a run. Each run has its own writer, and the entry accepts writes of the current
/// run only (OC-28).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RunId(u64);

impl RunId {
    pub(crate) const FIRST: Self = Self(1);

    fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

/// The state of an entry's watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchState {
    /// The entry has decided on a run and has no handle of its thread yet.
    Starting,
    /// The run has its thread.
    Running,
    /// No run is wanted.
    Stopped(StopReason),
    /// The object is immutable and its watch is stopped. A new reference makes the manager check
    /// that the server still has the same object (B7).
    Rechecking(CheckState),
    /// The last reference is gone. No input leads out of this state, so no run starts that has no
    /// owner (B6).
    Dropped,
}

/// The progress of the check of an immutable object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckState {
    /// The first check is in flight. Readers wait for it, at most a second.
    First,
    /// The check failed. Readers get the old copy, and the keeper tries the check again.
    Failed,
    /// A later check is in flight. No reader waits for it.
    Again,
}

/// Why an entry has no run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// The object cannot change (OC-15).
    Immutable,
    /// No reader asked for the object for the idle time (OC-18).
    Idle,
    /// The limit of reflectors is reached, or the system could not start a thread.
    NoRoom,
    /// The thread ended by itself, which is a defect.
    Crashed,
    /// The first list of the namespace's watch will bring the object. A reader does not wait for
    /// that list.
    Awaiting,
    /// The manager was shut down (OC-25).
    ShutDown {
        /// The object is known to be immutable, so readers still get it.
        serves: bool,
    },
}

/// An event in the life of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchInput {
    /// One more pod references the object.
    Referenced,
    /// A reader wants the object.
    Wanted,
    /// A thread was started for the run.
    Spawned(RunId),
    /// No thread could be started for the run.
    SpawnFailed(RunId),
    /// The thread of the run has ended.
    Ended(RunId),
    /// The namespace's watch is about to list, so the new object's first run is not started.
    Awaits(RunId),
    /// The successor has the whole state of the object: it becomes the current run.
    Succeeded(RunId),

    /// A reader got an immutable object that the current run has listed.
    ImmutableRead,
    /// No reader asked for the filled entry for the idle time.
    Idle,
    /// The keeper sweeps: an entry whose last attempt failed may try again.
    Retry,
    /// Another entry's run has ended, so there is capacity.
    Room,
    /// The check found the same object.
    CheckedSame,
    /// The check found another object, or none.
    CheckedOther,
    /// The check ended without an answer of the server.
    CheckFailed,
    /// The last reference is gone.
    Released,
    /// The manager shuts down.
    ShutDown,
}

/// The task of the caller after it has released the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchEffect {
    Nothing,
    /// Start the run.
    Start(RunId),
    /// Keep the handle of the run whose thread was started.
    Keep,
    /// End the run whose thread was started too late.
    Discard,
    /// End the runs whose handles the entry keeps, if it keeps any.
    End,
    /// End the run whose handle the entry keeps, and keep that of its successor.
    Replace,
    /// Check that the server still has the same immutable object.
    CheckState,
}

/// The state of one entry, and its current run.
///
/// A successor is a run that is prepared while the current one answers readers. It may write, and
/// its first whole list makes it the current run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WatchMachine {
    state: WatchState,
    run: RunId,
    successor: Option<RunId>,
    /// The run that was decided on last.
    issued: RunId,
}

impl WatchMachine {
    /// A new entry that has decided on its first run.
    pub(crate) fn starting() -> Self {
        Self::new(WatchState::Starting, RunId::FIRST)
    }

    /// A new entry of a manager that was shut down: it starts nothing (OC-25).
    pub(crate) fn shut_down() -> Self {
        let reason = StopReason::ShutDown { serves: false };
        Self::new(WatchState::Stopped(reason), RunId::default())
    }

    fn new(state: WatchState, run: RunId) -> Self {
        Self {
            state,
            run,
            successor: None,
            issued: run,
        }
    }

    pub(crate) fn state(self) -> WatchState {
        self.state
    }

    /// Whether `run` may write: an ended run cannot commit (OC-28).
    pub(crate) fn accepts(self, run: RunId) -> bool {
        self.is_current(run) || self.successor == Some(run)
    }

    /// Whether `run` is the current one, and at work.
    pub(crate) fn is_current(self, run: RunId) -> bool {
        run == self.run && self.is_at_work()
    }

    pub(crate) fn successor(self) -> Option<RunId> {
        self.successor
    }

    fn is_at_work(self) -> bool {
        matches!(self.state, WatchState::Starting | WatchState::Running)
    }

    /// Decides on a successor, if there is a run at work and no successor yet.
    pub(crate) fn prepared(mut self) -> Option<(Self, RunId)> {
        if !self.is_at_work() || self.successor.is_some() {
            return None;
        }
        self.issued = self.issued.next();
        self.successor = Some(self.issued);
        Some((self, self.issued))
    }

    /// Whether readers are answered from memory, if `filled_by` is the last run that has filled the
    /// entry (OC-12).
    pub(crate) fn serves(self, filled_by: Option<RunId>) -> bool {
        match self.state {
            WatchState::Starting | WatchState::Running => filled_by == Some(self.run),
            WatchState::Stopped(StopReason::Immutable | StopReason::ShutDown { serves: true })
            | WatchState::Rechecking(_) => true,
            WatchState::Stopped(
                StopReason::Idle
                | StopReason::NoRoom
                | StopReason::Crashed
                | StopReason::Awaiting
                | StopReason::ShutDown { serves: false },
            )
            | WatchState::Dropped => false,
        }
    }

    /// The state after `input`, and the task of the caller.
    #[must_use]
    pub(crate) fn on(self, input: WatchInput) -> (Self, WatchEffect) {
        let stay = (self, WatchEffect::Nothing);
        match (self.state, input) {
            (
                WatchState::Dropped | WatchState::Stopped(StopReason::ShutDown { .. }),
                WatchInput::Spawned(_),
            ) => (self, WatchEffect::Discard),
            (WatchState::Dropped, _) => stay,
            (_, WatchInput::Released) => self.to(WatchState::Dropped, WatchEffect::End),
            (WatchState::Stopped(StopReason::ShutDown { .. }), _) => stay,
            (state, WatchInput::ShutDown) => {
                let serves = matches!(
                    state,
                    WatchState::Stopped(StopReason::Immutable) | WatchState::Rechecking(_)
                );
                self.stop(StopReason::ShutDown { serves }, WatchEffect::End)
            }
            (_, WatchInput::Ended(run)) if self.successor == Some(run) => {
                let successor = None;
                (Self { successor, ..self }, WatchEffect::Nothing)
            }
            (_, WatchInput::Succeeded(run)) if self.successor == Some(run) => self.succeeded(run),
            (WatchState::Starting | WatchState::Running, input) => self.at_work(input),
            (WatchState::Stopped(reason), input) => self.stopped(reason, input),
            (WatchState::Rechecking(check), input) => self.rechecking(check, input),
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "a table: other inputs change nothing"
    )]
    fn at_work(self, input: WatchInput) -> (Self, WatchEffect) {
        match input {
            WatchInput::Spawned(run) if run == self.run => {
                self.to(WatchState::Running, WatchEffect::Keep)
            }
            WatchInput::Spawned(_) => (self, WatchEffect::Discard),
            WatchInput::SpawnFailed(run) if run == self.run => {
                self.stop(StopReason::NoRoom, WatchEffect::End)
            }
            WatchInput::Awaits(run)
                if run == self.run
                    && self.state == WatchState::Starting
                    && self.successor.is_some() =>
            {
                let state = WatchState::Stopped(StopReason::Awaiting);
                (Self { state, ..self }, WatchEffect::Nothing)
            }
            WatchInput::Ended(run) if run == self.run => {
                self.stop(StopReason::Crashed, WatchEffect::End)
            }
            WatchInput::ImmutableRead => self.stop(StopReason::Immutable, WatchEffect::End),
            WatchInput::Idle if self.state == WatchState::Running => {
                self.stop(StopReason::Idle, WatchEffect::End)
            }
            _ => (self, WatchEffect::Nothing),
        }
    }

    fn stopped(self, reason: StopReason, input: WatchInput) -> (Self, WatchEffect) {
        match (reason, input) {
            (_, WatchInput::Spawned(_)) => (self, WatchEffect::Discard),
            (StopReason::Immutable, WatchInput::Referenced) => self.to(
                WatchState::Rechecking(CheckState::First),
                WatchEffect::CheckState,
            ),
            // Without a thread the writer is dropped first, which looks like a crash.
            (StopReason::Crashed, WatchInput::SpawnFailed(run)) if run == self.run => {
                self.stop(StopReason::NoRoom, WatchEffect::Nothing)
            }
            // A fresh read counts as a check.
            (StopReason::Immutable, WatchInput::CheckedOther)
            | (StopReason::Idle, WatchInput::Wanted)
            | (
                StopReason::NoRoom | StopReason::Crashed | StopReason::Awaiting,
                WatchInput::Wanted | WatchInput::Retry,
            )
            | (StopReason::NoRoom, WatchInput::Room) => self.start(),
            _ => (self, WatchEffect::Nothing),
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "a table: other inputs change nothing"
    )]
    fn rechecking(self, check: CheckState, input: WatchInput) -> (Self, WatchEffect) {
        match input {
            WatchInput::Spawned(_) => (self, WatchEffect::Discard),
            WatchInput::CheckedSame => self.stop(StopReason::Immutable, WatchEffect::Nothing),
            WatchInput::CheckedOther => self.start(),
            WatchInput::CheckFailed => self.to(
                WatchState::Rechecking(CheckState::Failed),
                WatchEffect::Nothing,
            ),
            WatchInput::Referenced | WatchInput::Retry if check == CheckState::Failed => self.to(
                WatchState::Rechecking(CheckState::Again),
                WatchEffect::CheckState,
            ),
            _ => (self, WatchEffect::Nothing),
        }
    }

    fn succeeded(mut self, run: RunId) -> (Self, WatchEffect) {
        (self.run, self.successor) = (run, None);
        self.to(WatchState::Running, WatchEffect::Replace)
    }

    fn start(mut self) -> (Self, WatchEffect) {
        self.issued = self.issued.next();
        self.run = self.issued;
        self.to(WatchState::Starting, WatchEffect::Start(self.run))
    }

    fn stop(self, reason: StopReason, effect: WatchEffect) -> (Self, WatchEffect) {
        self.to(WatchState::Stopped(reason), effect)
    }

    /// A change of the state. The end of a run is the end of its successor, too.
    fn to(mut self, state: WatchState, effect: WatchEffect) -> (Self, WatchEffect) {
        self.state = state;
        self.successor = self.successor.filter(|_| effect != WatchEffect::End);
        (self, effect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const R1: RunId = RunId::FIRST;
    const R2: RunId = RunId(2);

    fn parse(input: &str) -> WatchInput {
        let (word, run) = input.split_once(' ').unwrap_or((input, "0"));
        let run = RunId(run.parse().unwrap());
        match word {
            "referenced" => WatchInput::Referenced,
            "wanted" => WatchInput::Wanted,
            "spawned" => WatchInput::Spawned(run),
            "spawn-failed" => WatchInput::SpawnFailed(run),
            "ended" => WatchInput::Ended(run),
            "awaits" => WatchInput::Awaits(run),
            "succeeded" => WatchInput::Succeeded(run),
            "immutable-read" => WatchInput::ImmutableRead,
            "idle" => WatchInput::Idle,
            "retry" => WatchInput::Retry,
            "room" => WatchInput::Room,
            "same" => WatchInput::CheckedSame,
            "other" => WatchInput::CheckedOther,
            "check-failed" => WatchInput::CheckFailed,
            "released" => WatchInput::Released,
            "shut-down" => WatchInput::ShutDown,
            other => panic!("unknown input {other}"),
        }
    }

    fn effect_in_words(effect: WatchEffect) -> String {
        match effect {
            WatchEffect::Nothing => "nothing".to_owned(),
            WatchEffect::Start(run) => format!("start {}", run.0),
            WatchEffect::Keep => "keep".to_owned(),
            WatchEffect::Discard => "discard".to_owned(),
            WatchEffect::End => "end".to_owned(),
            WatchEffect::Replace => "replace".to_owned(),
            WatchEffect::CheckState => "check".to_owned(),
        }
    }

    fn state_in_words(state: WatchState) -> &'static str {
        match state {
            WatchState::Starting => "starting",
            WatchState::Running => "running",
            WatchState::Stopped(StopReason::Immutable) => "immutable",
            WatchState::Stopped(StopReason::Idle) => "idle",
            WatchState::Stopped(StopReason::NoRoom) => "no room",
            WatchState::Stopped(StopReason::Crashed) => "crashed",
            WatchState::Stopped(StopReason::Awaiting) => "awaiting",
            WatchState::Stopped(StopReason::ShutDown { serves: false }) => "shut down",
            WatchState::Stopped(StopReason::ShutDown { serves: true }) => "shut down, serves",
            WatchState::Rechecking(CheckState::First) => "checking",
            WatchState::Rechecking(CheckState::Failed) => "check failed",
            WatchState::Rechecking(CheckState::Again) => "checking again",
            WatchState::Dropped => "dropped",
        }
    }

    /// Plays the lines of a story, `input -> action: state`, from a new entry on.
    fn after(story: &str) -> WatchMachine {
        let mut machine = WatchMachine::starting();
        for line in story.lines().map(str::trim).filter(|line| !line.is_empty()) {
            if let Some(number) = line.strip_prefix("prepared ") {
                let (next, run) = machine.prepared().unwrap();
                assert_eq!(run.0.to_string(), number, "{line}\n{story}");
                machine = next;
                continue;
            }
            let (input, expected) = line.split_once(" -> ").unwrap_or((line, ""));
            let (next, effect) = machine.on(parse(input));
            machine = next;
            let got = format!(
                "{}: {}",
                effect_in_words(effect),
                state_in_words(next.state)
            );
            assert!(
                expected.is_empty() || got == expected,
                "{line}: got {got}\n{story}"
            );
        }
        machine
    }

    #[test]
    fn oc_2_oc_3_a_watch_lives_as_long_as_its_references() {
        after(
            "spawned 1 -> keep: running
             referenced -> nothing: running
             released -> end: dropped",
        );
    }

    #[test]
    fn oc_27_b6_nothing_starts_after_the_release() {
        after(
            "released -> end: dropped
             spawned 1 -> discard: dropped",
        );
        after(
            "released -> end: dropped
             wanted -> nothing: dropped
             retry -> nothing: dropped
             referenced -> nothing: dropped",
        );
    }

    #[test]
    fn oc_15_the_read_of_an_immutable_object_stops_its_watch() {
        after(
            "spawned 1 -> keep: running
             immutable-read -> end: immutable
             wanted -> nothing: immutable
             retry -> nothing: immutable",
        );
        after(
            "immutable-read -> end: immutable
             spawned 1 -> discard: immutable",
        );
    }

    #[test]
    fn oc_18_oc_21_only_a_reader_restarts_an_idle_watch() {
        after(
            "spawned 1 -> keep: running
             idle -> end: idle
             retry -> nothing: idle
             referenced -> nothing: idle
             wanted -> start 2: starting
             spawned 2 -> keep: running",
        );
    }

    #[test]
    fn oc_20_a_watch_that_starts_is_not_idle() {
        after("idle -> nothing: starting");
    }

    #[test]
    fn oc_28_an_ended_run_changes_nothing() {
        after(
            "spawned 1 -> keep: running
             idle -> end: idle
             wanted -> start 2: starting
             ended 1 -> nothing: starting
             spawn-failed 1 -> nothing: starting
             ended 2 -> end: crashed
             spawn-failed 1 -> nothing: crashed",
        );
    }

    #[test]
    fn a_watch_without_room_starts_when_there_is_room_or_a_reader_or_a_sweep() {
        for input in ["room", "wanted", "retry"] {
            after(&format!(
                "spawn-failed 1 -> end: no room
                 {input} -> start 2: starting"
            ));
        }
        // The writer is dropped before the failure to start a thread is known.
        after(
            "ended 1 -> end: crashed
             spawn-failed 1 -> nothing: no room",
        );
    }

    #[test]
    fn a_successor_that_has_listed_is_the_current_run() {
        after(
            "prepared 2
             spawned 1 -> keep: running
             succeeded 2 -> replace: running
             ended 1 -> nothing: running
             ended 2 -> end: crashed
             retry -> start 3: starting",
        );
        assert!(after("prepared 2").prepared().is_none(), "one at a time");
        // Its list may come before the thread of the run before it is known.
        after(
            "prepared 2
             succeeded 2 -> replace: running
             spawned 1 -> discard: running",
        );
        after(
            "spawned 1 -> keep: running
             prepared 2
             ended 2 -> nothing: running
             succeeded 2 -> nothing: running
             prepared 3
             succeeded 3 -> replace: running",
        );
    }

    #[test]
    fn a_successor_ends_with_the_watch() {
        for (input, state) in [
            ("released", "dropped"),
            ("idle", "idle"),
            ("immutable-read", "immutable"),
            ("ended 1", "crashed"),
            ("shut-down", "shut down"),
        ] {
            let machine = after(&format!(
                "spawned 1 -> keep: running
                 prepared 2
                 {input} -> end: {state}
                 succeeded 2 -> nothing: {state}"
            ));
            assert!(!machine.accepts(R2), "{input}");
            assert!(machine.prepared().is_none(), "{input}");
        }
    }

    #[test]
    fn an_awaiting_object_starts_with_a_reader_or_a_sweep_or_is_listed() {
        for input in ["wanted", "retry"] {
            after(&format!(
                "prepared 2
                 awaits 1 -> nothing: awaiting
                 {input} -> start 3: starting
                 spawned 3 -> keep: running
                 succeeded 2 -> replace: running"
            ));
        }
        after(
            "prepared 2
             awaits 1 -> nothing: awaiting
             succeeded 2 -> replace: running",
        );
        after(
            "prepared 2
             awaits 1 -> nothing: awaiting
             idle -> nothing: awaiting
             released -> end: dropped",
        );
        after(
            "awaits 1 -> nothing: starting
             prepared 2
             awaits 3 -> nothing: starting
             spawned 1 -> keep: running
             awaits 1 -> nothing: running",
        );
    }

    #[test]
    fn a_crashed_watch_starts_with_the_next_sweep() {
        after(
            "spawned 1 -> keep: running
             ended 1 -> end: crashed
             room -> nothing: crashed
             retry -> start 2: starting",
        );
    }

    #[test]
    fn b7_a_new_reference_has_an_immutable_object_checked() {
        after(
            "immutable-read -> end: immutable
             referenced -> check: checking
             same -> nothing: immutable",
        );
        after(
            "immutable-read -> end: immutable
             referenced -> check: checking
             other -> start 2: starting",
        );
    }

    #[test]
    fn b7_one_check_at_a_time_and_another_after_a_failure() {
        after(
            "immutable-read -> end: immutable
             referenced -> check: checking
             referenced -> nothing: checking
             retry -> nothing: checking
             check-failed -> nothing: check failed
             retry -> check: checking again
             same -> nothing: immutable",
        );
    }

    #[test]
    fn b7_a_thread_that_comes_during_a_check_is_ended() {
        after(
            "immutable-read -> end: immutable
             referenced -> check: checking
             spawned 1 -> discard: checking",
        );
    }

    #[test]
    fn b7_a_fresh_read_counts_as_a_check() {
        after(
            "immutable-read -> end: immutable
             other -> start 2: starting",
        );
        after(
            "immutable-read -> end: immutable
             referenced -> check: checking
             same -> nothing: immutable
             other -> start 2: starting",
        );
    }

    #[test]
    fn b7_a_release_makes_a_check_void() {
        after(
            "immutable-read -> end: immutable
             referenced -> check: checking
             released -> end: dropped
             other -> nothing: dropped",
        );
    }

    #[test]
    fn oc_25_b6_nothing_starts_after_a_shutdown() {
        after(
            "spawned 1 -> keep: running
             shut-down -> end: shut down
             wanted -> nothing: shut down
             retry -> nothing: shut down",
        );
        after(
            "shut-down -> end: shut down
             spawned 1 -> discard: shut down
             released -> end: dropped",
        );
        after(
            "immutable-read -> end: immutable
             shut-down -> end: shut down, serves
             referenced -> nothing: shut down, serves",
        );
    }

    /// OC-12, OC-21: only the current run's list counts; readers wait again after an idle stop.
    #[test]
    fn which_states_answer_readers_from_memory() {
        let rows = [
            ("spawned 1", None, false),
            ("spawned 1", Some(R1), true),
            ("spawned 1\nidle", Some(R1), false),
            ("spawned 1\nidle\nwanted", Some(R1), false),
            ("spawned 1\nidle\nwanted", Some(R2), true),
            ("immutable-read", Some(R1), true),
            ("immutable-read\nreferenced", Some(R1), true),
            ("immutable-read\nshut-down", Some(R1), true),
            ("spawned 1\nshut-down", Some(R1), false),
            ("spawned 1\nprepared 2", Some(R1), true),
            ("spawned 1\nprepared 2\nsucceeded 2", Some(R1), false),
            ("spawned 1\nprepared 2\nsucceeded 2", Some(R2), true),
            ("prepared 2\nawaits 1", None, false),
        ];
        for (story, filled_by, serves) in rows {
            assert_eq!(after(story).serves(filled_by), serves, "{story}");
        }
        assert!(!WatchMachine::shut_down().serves(None));
    }

    /// OC-28: only the current run may write, and only until it ends.
    #[test]
    fn which_runs_may_write() {
        let rows = [
            ("", R1, true),
            ("spawned 1", R1, true),
            ("spawned 1\nidle", R1, false),
            ("spawned 1\nidle\nwanted", R1, false),
            ("spawned 1\nidle\nwanted", R2, true),
            ("released", R1, false),
            ("prepared 2", R1, true),
            ("prepared 2", R2, true),
            ("prepared 2\nawaits 1", R2, true),
            ("prepared 2\nawaits 1", R1, false),
            ("prepared 2\nsucceeded 2", R1, false),
        ];
        for (story, run, accepts) in rows {
            assert_eq!(after(story).accepts(run), accepts, "{story}");
        }
    }
}
