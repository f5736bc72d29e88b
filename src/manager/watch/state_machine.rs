//! The life of one referenced object's watch, as a function from (state, input) to (state, effect).
//! Pure.
//!
//! It owns no thread, lock or clock, so a simulation can drive it, and every race of the originals
//! (OC-27..OC-29) is a line of a test.

/// One run of an item's reflector. Each has a writer of its own, and only the present one is heard
/// (OC-28).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RunId(u64);

impl RunId {
    pub(crate) const FIRST: Self = Self(1);

    fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

/// What is going on with an item's watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchState {
    /// A run was decided on; its thread has not been handed over yet.
    Starting,
    /// A run's thread is at work.
    Running,
    /// Nobody is at work.
    Stopped(StopReason),
    /// The object is immutable and its watch stopped; a new reference asked whether it is still the
    /// same one (B7).
    Rechecking(CheckState),
    /// The last reference is gone. Nothing leads out of here, so nothing is started that nobody
    /// owns (B6).
    Dropped,
}

/// How far the check of an immutable object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckState {
    /// Under way; readers wait a moment for it.
    First,
    /// It failed; the old copy is served, and the check tried again later.
    Failed,
    /// Under way once more; nobody waits for it.
    Again,
}

/// Why nobody is at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// The object cannot change (OC-15).
    Immutable,
    /// Nobody read it for a while (OC-18).
    Idle,
    /// The ceiling of reflectors is reached, or the system has no thread to give.
    NoRoom,
    /// The thread ended by itself, which is a defect.
    Crashed,
    /// The manager was shut down (OC-25).
    ShutDown {
        /// The object was known to be immutable and goes on being served.
        serves: bool,
    },
}

/// What happens to an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchInput {
    /// One more pod references the object.
    Referenced,
    /// A reader wants the object.
    Wanted,
    /// A decided run has its thread.
    Spawned(RunId),
    /// A decided run got no thread.
    SpawnFailed(RunId),
    /// A run's thread has ended.
    Ended(RunId),
    /// A reader was given an object that is immutable, out of what the present run filled.
    ImmutableRead,
    /// Nobody has read the filled item for the idle time.
    Idle,
    /// The housekeeper's round: what failed before may be tried again.
    Retry,
    /// A run has ended and made room for another.
    Room,
    /// The check found the same object.
    CheckedSame,
    /// The check found another object, or none.
    CheckedOther,
    /// The check came to no answer.
    CheckFailed,
    /// The last reference is gone.
    Released,
    /// The manager shuts down.
    ShutDown,
}

/// What is to be done about it, once the lock is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchEffect {
    Nothing,
    /// Start a run.
    Start(RunId),
    /// Keep the handle of the run that has its thread now.
    Keep,
    /// End the run whose handle came too late.
    Discard,
    /// End the run whose handle the item keeps, if it has come.
    End,
    /// Look whether the immutable object is still the same one.
    CheckState,
}

/// The state of one item, and the run it is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WatchMachine {
    state: WatchState,
    run: RunId,
}

impl WatchMachine {
    /// A new item whose first run is decided.
    pub(crate) fn starting() -> Self {
        Self {
            state: WatchState::Starting,
            run: RunId::FIRST,
        }
    }

    /// A new item of a manager that was shut down: it starts nothing (OC-25).
    pub(crate) fn shut_down() -> Self {
        Self {
            state: WatchState::Stopped(StopReason::ShutDown { serves: false }),
            run: RunId::default(),
        }
    }

    pub(crate) fn state(self) -> WatchState {
        self.state
    }

    /// Whether what `run` brings is heard: an ended run cannot commit (OC-28).
    pub(crate) fn accepts(self, run: RunId) -> bool {
        run == self.run && matches!(self.state, WatchState::Starting | WatchState::Running)
    }

    /// Whether readers are answered from memory, when `filled_by` is the last run that filled it
    /// (OC-12).
    pub(crate) fn serves(self, filled_by: Option<RunId>) -> bool {
        match self.state {
            WatchState::Starting | WatchState::Running => filled_by == Some(self.run),
            WatchState::Stopped(StopReason::Immutable | StopReason::ShutDown { serves: true })
            | WatchState::Rechecking(_) => true,
            WatchState::Stopped(
                StopReason::Idle
                | StopReason::NoRoom
                | StopReason::Crashed
                | StopReason::ShutDown { serves: false },
            )
            | WatchState::Dropped => false,
        }
    }

    /// Moves on.
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
                self.to(
                    WatchState::Stopped(StopReason::ShutDown { serves }),
                    WatchEffect::End,
                )
            }
            (WatchState::Starting | WatchState::Running, input) => self.at_work(input),
            (WatchState::Stopped(why), input) => self.at_rest(why, input),
            (WatchState::Rechecking(check), input) => self.rechecking(check, input),
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "a table: what no row names changes nothing"
    )]
    fn at_work(self, input: WatchInput) -> (Self, WatchEffect) {
        match input {
            WatchInput::Spawned(run) if run == self.run => {
                self.to(WatchState::Running, WatchEffect::Keep)
            }
            WatchInput::Spawned(_) => (self, WatchEffect::Discard),
            WatchInput::SpawnFailed(run) if run == self.run => {
                self.rest(StopReason::NoRoom, WatchEffect::Nothing)
            }
            WatchInput::Ended(run) if run == self.run => {
                self.rest(StopReason::Crashed, WatchEffect::End)
            }
            WatchInput::ImmutableRead => self.rest(StopReason::Immutable, WatchEffect::End),
            WatchInput::Idle if self.state == WatchState::Running => {
                self.rest(StopReason::Idle, WatchEffect::End)
            }
            _ => (self, WatchEffect::Nothing),
        }
    }

    fn at_rest(self, why: StopReason, input: WatchInput) -> (Self, WatchEffect) {
        match (why, input) {
            (_, WatchInput::Spawned(_)) => (self, WatchEffect::Discard),
            (StopReason::Immutable, WatchInput::Referenced) => self.to(
                WatchState::Rechecking(CheckState::First),
                WatchEffect::CheckState,
            ),
            // A thread that could not be had drops its writer, which looks like a crash until this
            // is said.
            (StopReason::Crashed, WatchInput::SpawnFailed(run)) if run == self.run => {
                self.rest(StopReason::NoRoom, WatchEffect::Nothing)
            }
            // A fresh read is as good as a check.
            (StopReason::Immutable, WatchInput::CheckedOther)
            | (StopReason::Idle, WatchInput::Wanted)
            | (StopReason::NoRoom | StopReason::Crashed, WatchInput::Wanted | WatchInput::Retry)
            | (StopReason::NoRoom, WatchInput::Room) => self.start(),
            _ => (self, WatchEffect::Nothing),
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "a table: what no row names changes nothing"
    )]
    fn rechecking(self, check: CheckState, input: WatchInput) -> (Self, WatchEffect) {
        match input {
            WatchInput::Spawned(_) => (self, WatchEffect::Discard),
            WatchInput::CheckedSame => self.rest(StopReason::Immutable, WatchEffect::Nothing),
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

    fn start(self) -> (Self, WatchEffect) {
        let run = self.run.next();
        let started = Self {
            state: WatchState::Starting,
            run,
        };
        (started, WatchEffect::Start(run))
    }

    fn rest(self, why: StopReason, effect: WatchEffect) -> (Self, WatchEffect) {
        self.to(WatchState::Stopped(why), effect)
    }

    fn to(self, state: WatchState, effect: WatchEffect) -> (Self, WatchEffect) {
        (Self { state, ..self }, effect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const R1: RunId = RunId::FIRST;
    const R2: RunId = RunId(2);

    /// Drives a machine through inputs; returns where it stands and each effect.
    fn drive(mut machine: WatchMachine, inputs: &[WatchInput]) -> (WatchState, Vec<WatchEffect>) {
        let mut effects = Vec::new();
        for input in inputs {
            let (next, effect) = machine.on(*input);
            machine = next;
            effects.push(effect);
        }
        (machine.state(), effects)
    }

    fn after(inputs: &[WatchInput]) -> WatchMachine {
        let start = WatchMachine::starting();
        inputs
            .iter()
            .fold(start, |machine, input| machine.on(*input).0)
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn the_life_of_a_watch_row_by_row() {
        use WatchEffect::{CheckState as Look, Discard, End, Keep, Nothing, Start};
        use WatchInput::{
            CheckFailed, CheckedOther, CheckedSame, Ended, Idle, ImmutableRead, Referenced,
            Released, Retry, Room, ShutDown, SpawnFailed, Spawned, Wanted,
        };
        use WatchState::{Dropped, Rechecking, Running, Starting, Stopped};
        let rows: &[(&str, &[WatchInput], WatchState, &[WatchEffect])] = &[
            ("OC-2", &[Spawned(R1)], Running, &[Keep]),
            (
                "OC-2: more references start nothing",
                &[Spawned(R1), Referenced],
                Running,
                &[Keep, Nothing],
            ),
            ("OC-3", &[Spawned(R1), Released], Dropped, &[Keep, End]),
            (
                "OC-27, B6: released before the thread came",
                &[Released, Spawned(R1)],
                Dropped,
                &[End, Discard],
            ),
            (
                "OC-27, B6: wanted after the release",
                &[Released, Wanted, Retry, Referenced],
                Dropped,
                &[End, Nothing, Nothing, Nothing],
            ),
            (
                "OC-15",
                &[Spawned(R1), ImmutableRead],
                Stopped(StopReason::Immutable),
                &[Keep, End],
            ),
            (
                "OC-15: before the thread came",
                &[ImmutableRead, Spawned(R1)],
                Stopped(StopReason::Immutable),
                &[End, Discard],
            ),
            (
                "OC-15: a read restarts nothing",
                &[Spawned(R1), ImmutableRead, Wanted, Retry],
                Stopped(StopReason::Immutable),
                &[Keep, End, Nothing, Nothing],
            ),
            (
                "OC-18, OC-21",
                &[Spawned(R1), Idle, Wanted, Spawned(R2)],
                Running,
                &[Keep, End, Start(R2), Keep],
            ),
            (
                "OC-18: only a reader restarts it",
                &[Spawned(R1), Idle, Retry, Referenced],
                Stopped(StopReason::Idle),
                &[Keep, End, Nothing, Nothing],
            ),
            (
                "OC-20: one that starts is not idle",
                &[Idle],
                Starting,
                &[Nothing],
            ),
            (
                "OC-28: an ended run changes nothing",
                &[Spawned(R1), Idle, Wanted, Ended(R1)],
                Starting,
                &[Keep, End, Start(R2), Nothing],
            ),
            (
                "the ceiling",
                &[SpawnFailed(R1), Retry],
                Starting,
                &[Nothing, Start(R2)],
            ),
            (
                "the ceiling, with room again",
                &[SpawnFailed(R1), Room],
                Starting,
                &[Nothing, Start(R2)],
            ),
            (
                "a crash waits for the round",
                &[Spawned(R1), Ended(R1), Room],
                Stopped(StopReason::Crashed),
                &[Keep, End, Nothing],
            ),
            (
                "the ceiling, for a reader",
                &[SpawnFailed(R1), Wanted],
                Starting,
                &[Nothing, Start(R2)],
            ),
            (
                "no thread: its writer is dropped first",
                &[Ended(R1), SpawnFailed(R1)],
                Stopped(StopReason::NoRoom),
                &[End, Nothing],
            ),
            (
                "a crash",
                &[Spawned(R1), Ended(R1), Retry],
                Starting,
                &[Keep, End, Start(R2)],
            ),
            (
                "B7: same",
                &[ImmutableRead, Referenced, CheckedSame],
                Stopped(StopReason::Immutable),
                &[End, Look, Nothing],
            ),
            (
                "B7: another",
                &[ImmutableRead, Referenced, CheckedOther],
                Starting,
                &[End, Look, Start(R2)],
            ),
            (
                "B7: a fresh read found another, unasked",
                &[ImmutableRead, CheckedOther],
                Starting,
                &[End, Start(R2)],
            ),
            (
                "B7: a fresh read came before the check",
                &[ImmutableRead, Referenced, CheckedSame, CheckedOther],
                Starting,
                &[End, Look, Nothing, Start(R2)],
            ),
            (
                "B7: failed and tried again",
                &[ImmutableRead, Referenced, CheckFailed, Retry, CheckedSame],
                Stopped(StopReason::Immutable),
                &[End, Look, Nothing, Look, Nothing],
            ),
            (
                "B7: one check at a time",
                &[ImmutableRead, Referenced, Referenced, Retry],
                Rechecking(CheckState::First),
                &[End, Look, Nothing, Nothing],
            ),
            (
                "B7: released meanwhile",
                &[ImmutableRead, Referenced, Released, CheckedOther],
                Dropped,
                &[End, Look, End, Nothing],
            ),
            (
                "OC-25",
                &[Spawned(R1), ShutDown, Wanted, Retry],
                Stopped(StopReason::ShutDown { serves: false }),
                &[Keep, End, Nothing, Nothing],
            ),
            (
                "OC-25: an immutable one is served",
                &[ImmutableRead, ShutDown, Referenced],
                Stopped(StopReason::ShutDown { serves: true }),
                &[End, End, Nothing],
            ),
            (
                "OC-25, B6: shut down before the thread came",
                &[ShutDown, Spawned(R1)],
                Stopped(StopReason::ShutDown { serves: false }),
                &[End, Discard],
            ),
            (
                "OC-25: released after",
                &[ShutDown, Released],
                Dropped,
                &[End, End],
            ),
        ];
        for (what, inputs, state, effects) in rows {
            let (reached, caused) = drive(WatchMachine::starting(), inputs);
            assert_eq!(reached, *state, "{what}");
            assert_eq!(caused, *effects, "{what}");
        }
    }

    /// OC-12, OC-21: filled means by the present run; a stop for idleness makes readers wait again.
    #[test]
    fn who_is_answered_from_memory() {
        use WatchInput::{Idle, ImmutableRead, Referenced, ShutDown, Spawned, Wanted};
        let filled = Some(R1);
        assert!(!after(&[Spawned(R1)]).serves(None));
        assert!(after(&[Spawned(R1)]).serves(filled));
        assert!(!after(&[Spawned(R1), Idle]).serves(filled));
        assert!(!after(&[Spawned(R1), Idle, Wanted]).serves(filled));
        assert!(after(&[Spawned(R1), Idle, Wanted]).serves(Some(R2)));
        assert!(after(&[ImmutableRead]).serves(filled));
        assert!(after(&[ImmutableRead, Referenced]).serves(filled));
        assert!(after(&[ImmutableRead, ShutDown]).serves(filled));
        assert!(!after(&[Spawned(R1), ShutDown]).serves(filled));
        assert!(!WatchMachine::shut_down().serves(None));
    }

    /// OC-28: only the present run is heard, and only while it is at work.
    #[test]
    fn who_is_heard() {
        use WatchInput::{Idle, Released, Spawned, Wanted};
        assert!(WatchMachine::starting().accepts(R1));
        assert!(after(&[Spawned(R1)]).accepts(R1));
        assert!(!after(&[Spawned(R1), Idle]).accepts(R1));
        assert!(!after(&[Spawned(R1), Idle, Wanted]).accepts(R1));
        assert!(after(&[Spawned(R1), Idle, Wanted]).accepts(R2));
        assert!(!after(&[Released]).accepts(R1));
    }
}
