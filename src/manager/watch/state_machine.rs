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
pub(crate) enum State {
    /// A run was decided on; its thread has not been handed over yet.
    Starting,
    /// A run's thread is at work.
    Running,
    /// Nobody is at work.
    Stopped(Why),
    /// The object is immutable and its watch stopped; a new reference asked whether it is still the
    /// same one (B7).
    Rechecking(Check),
    /// The last reference is gone. Nothing leads out of here, so nothing is started that nobody
    /// owns (B6).
    Dropped,
}

/// How far the check of an immutable object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// Under way; readers wait a moment for it.
    First,
    /// It failed; the old copy is served, and the check tried again later.
    Failed,
    /// Under way once more; nobody waits for it.
    Again,
}

/// Why nobody is at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
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
pub(crate) enum Input {
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
pub(crate) enum Effect {
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
    Check,
}

/// The state of one item, and the run it is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    state: State,
    run: RunId,
}

impl Machine {
    /// A new item whose first run is decided.
    pub(crate) fn starting() -> Self {
        Self {
            state: State::Starting,
            run: RunId::FIRST,
        }
    }

    /// A new item of a manager that was shut down: it starts nothing (OC-25).
    pub(crate) fn shut_down() -> Self {
        Self {
            state: State::Stopped(Why::ShutDown { serves: false }),
            run: RunId::default(),
        }
    }

    pub(crate) fn state(self) -> State {
        self.state
    }

    /// Whether what `run` brings is heard: an ended run cannot commit (OC-28).
    pub(crate) fn hears(self, run: RunId) -> bool {
        run == self.run && matches!(self.state, State::Starting | State::Running)
    }

    /// Whether readers are answered from memory, when `filled_by` is the last run that filled it
    /// (OC-12).
    pub(crate) fn serves(self, filled_by: Option<RunId>) -> bool {
        match self.state {
            State::Starting | State::Running => filled_by == Some(self.run),
            State::Stopped(Why::Immutable | Why::ShutDown { serves: true })
            | State::Rechecking(_) => true,
            State::Stopped(
                Why::Idle | Why::NoRoom | Why::Crashed | Why::ShutDown { serves: false },
            )
            | State::Dropped => false,
        }
    }

    /// Moves on.
    #[must_use]
    pub(crate) fn on(self, input: Input) -> (Self, Effect) {
        let stay = (self, Effect::Nothing);
        match (self.state, input) {
            (State::Dropped | State::Stopped(Why::ShutDown { .. }), Input::Spawned(_)) => {
                (self, Effect::Discard)
            }
            (State::Dropped, _) => stay,
            (_, Input::Released) => self.to(State::Dropped, Effect::End),
            (State::Stopped(Why::ShutDown { .. }), _) => stay,
            (state, Input::ShutDown) => {
                let serves = matches!(state, State::Stopped(Why::Immutable) | State::Rechecking(_));
                self.to(State::Stopped(Why::ShutDown { serves }), Effect::End)
            }
            (State::Starting | State::Running, input) => self.at_work(input),
            (State::Stopped(why), input) => self.at_rest(why, input),
            (State::Rechecking(check), input) => self.rechecking(check, input),
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "a table: what no row names changes nothing"
    )]
    fn at_work(self, input: Input) -> (Self, Effect) {
        match input {
            Input::Spawned(run) if run == self.run => self.to(State::Running, Effect::Keep),
            Input::Spawned(_) => (self, Effect::Discard),
            Input::SpawnFailed(run) if run == self.run => self.rest(Why::NoRoom, Effect::Nothing),
            Input::Ended(run) if run == self.run => self.rest(Why::Crashed, Effect::End),
            Input::ImmutableRead => self.rest(Why::Immutable, Effect::End),
            Input::Idle if self.state == State::Running => self.rest(Why::Idle, Effect::End),
            _ => (self, Effect::Nothing),
        }
    }

    fn at_rest(self, why: Why, input: Input) -> (Self, Effect) {
        match (why, input) {
            (_, Input::Spawned(_)) => (self, Effect::Discard),
            (Why::Immutable, Input::Referenced) => {
                self.to(State::Rechecking(Check::First), Effect::Check)
            }
            // A thread that could not be had drops its writer, which looks like a crash until this
            // is said.
            (Why::Crashed, Input::SpawnFailed(run)) if run == self.run => {
                self.rest(Why::NoRoom, Effect::Nothing)
            }
            // A fresh read is as good as a check.
            (Why::Immutable, Input::CheckedOther)
            | (Why::Idle, Input::Wanted)
            | (Why::NoRoom | Why::Crashed, Input::Wanted | Input::Retry)
            | (Why::NoRoom, Input::Room) => self.start(),
            _ => (self, Effect::Nothing),
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "a table: what no row names changes nothing"
    )]
    fn rechecking(self, check: Check, input: Input) -> (Self, Effect) {
        match input {
            Input::Spawned(_) => (self, Effect::Discard),
            Input::CheckedSame => self.rest(Why::Immutable, Effect::Nothing),
            Input::CheckedOther => self.start(),
            Input::CheckFailed => self.to(State::Rechecking(Check::Failed), Effect::Nothing),
            Input::Referenced | Input::Retry if check == Check::Failed => {
                self.to(State::Rechecking(Check::Again), Effect::Check)
            }
            _ => (self, Effect::Nothing),
        }
    }

    fn start(self) -> (Self, Effect) {
        let run = self.run.next();
        let started = Self {
            state: State::Starting,
            run,
        };
        (started, Effect::Start(run))
    }

    fn rest(self, why: Why, effect: Effect) -> (Self, Effect) {
        self.to(State::Stopped(why), effect)
    }

    fn to(self, state: State, effect: Effect) -> (Self, Effect) {
        (Self { state, ..self }, effect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const R1: RunId = RunId::FIRST;
    const R2: RunId = RunId(2);

    /// Drives a machine through inputs; returns where it stands and each effect.
    fn drive(mut machine: Machine, inputs: &[Input]) -> (State, Vec<Effect>) {
        let mut effects = Vec::new();
        for input in inputs {
            let (next, effect) = machine.on(*input);
            machine = next;
            effects.push(effect);
        }
        (machine.state(), effects)
    }

    fn after(inputs: &[Input]) -> Machine {
        let start = Machine::starting();
        inputs
            .iter()
            .fold(start, |machine, input| machine.on(*input).0)
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn the_life_of_a_watch_row_by_row() {
        use Effect::{Check as Look, Discard, End, Keep, Nothing, Start};
        use Input::{
            CheckFailed, CheckedOther, CheckedSame, Ended, Idle, ImmutableRead, Referenced,
            Released, Retry, Room, ShutDown, SpawnFailed, Spawned, Wanted,
        };
        use State::{Dropped, Rechecking, Running, Starting, Stopped};
        let rows: &[(&str, &[Input], State, &[Effect])] = &[
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
                Stopped(Why::Immutable),
                &[Keep, End],
            ),
            (
                "OC-15: before the thread came",
                &[ImmutableRead, Spawned(R1)],
                Stopped(Why::Immutable),
                &[End, Discard],
            ),
            (
                "OC-15: a read restarts nothing",
                &[Spawned(R1), ImmutableRead, Wanted, Retry],
                Stopped(Why::Immutable),
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
                Stopped(Why::Idle),
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
                Stopped(Why::Crashed),
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
                Stopped(Why::NoRoom),
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
                Stopped(Why::Immutable),
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
                Stopped(Why::Immutable),
                &[End, Look, Nothing, Look, Nothing],
            ),
            (
                "B7: one check at a time",
                &[ImmutableRead, Referenced, Referenced, Retry],
                Rechecking(Check::First),
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
                Stopped(Why::ShutDown { serves: false }),
                &[Keep, End, Nothing, Nothing],
            ),
            (
                "OC-25: an immutable one is served",
                &[ImmutableRead, ShutDown, Referenced],
                Stopped(Why::ShutDown { serves: true }),
                &[End, End, Nothing],
            ),
            (
                "OC-25, B6: shut down before the thread came",
                &[ShutDown, Spawned(R1)],
                Stopped(Why::ShutDown { serves: false }),
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
            let (reached, caused) = drive(Machine::starting(), inputs);
            assert_eq!(reached, *state, "{what}");
            assert_eq!(caused, *effects, "{what}");
        }
    }

    /// OC-12, OC-21: filled means by the present run; a stop for idleness makes readers wait again.
    #[test]
    fn who_is_answered_from_memory() {
        use Input::{Idle, ImmutableRead, Referenced, ShutDown, Spawned, Wanted};
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
        assert!(!Machine::shut_down().serves(None));
    }

    /// OC-28: only the present run is heard, and only while it is at work.
    #[test]
    fn who_is_heard() {
        use Input::{Idle, Released, Spawned, Wanted};
        assert!(Machine::starting().hears(R1));
        assert!(after(&[Spawned(R1)]).hears(R1));
        assert!(!after(&[Spawned(R1), Idle]).hears(R1));
        assert!(!after(&[Spawned(R1), Idle, Wanted]).hears(R1));
        assert!(after(&[Spawned(R1), Idle, Wanted]).hears(R2));
        assert!(!after(&[Released]).hears(R1));
    }
}
