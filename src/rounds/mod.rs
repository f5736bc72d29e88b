//! Rounds of work on a thread. A caller that asks for a round can wait until a later one has ended.

#[cfg(all(test, shuttle))]
mod schedules;

use std::collections::BTreeMap;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::clock::{Clock, Deadline};
use crate::error::{Error, ErrorKind};
use crate::sync::{Arc, Monitor, Rank};
use crate::worker::{StopToken, Task, Wake, WakeRegistration};

/// The rounds that a thread was asked for, and those it has done. `S` is its status after a round.
pub(crate) struct Rounds<S> {
    state: Arc<Monitor<RoundsState<S>>>,
    wake: Sender<()>,
}

struct RoundsState<S> {
    asked: u64,
    /// Whether the thread was stopped, or has ended.
    has_ended: bool,
    /// The present round of the thread, and the next one, which those who ask now wait for.
    tasks: [Option<Task>; 2],
    /// When the thread began the present step of its round.
    step: Option<Instant>,
    status: S,
    /// For each round with a waiter: the thread's status after it, once it has ended.
    outcomes: BTreeMap<u64, Option<S>>,
}

/// Tells waiters that no more rounds come: at the stop, or at its drop.
pub(crate) struct RoundsEnd {
    end: Arc<dyn Wake>,
    _at_stop: WakeRegistration,
}

impl Drop for RoundsEnd {
    fn drop(&mut self) {
        self.end.wake();
    }
}

impl<S: Clone + Send + 'static> Rounds<S> {
    /// Makes the rounds of a new thread, and the channel that wakes it.
    pub(crate) fn new(status: S) -> (Self, Receiver<()>) {
        let (wake, woken) = bounded(1);
        let state = RoundsState {
            asked: 0,
            has_ended: false,
            tasks: [None, None],
            step: None,
            status,
            outcomes: BTreeMap::new(),
        };
        let state = Arc::new(Monitor::ranked(Rank::ROUNDS, state));
        (Self { state, wake }, woken)
    }

    /// Asks for a round that begins after this call.
    pub(crate) fn ask(&self) {
        self.order(&mut self.state.lock());
    }

    /// Returns the number of the round.
    fn order(&self, state: &mut RoundsState<S>) -> u64 {
        state.asked = state.asked.saturating_add(1);
        // A full channel holds the message this one would have been.
        let _full = self.wake.try_send(()).is_err();
        state.asked
    }

    /// Asks for a round that begins after this call, and waits for its end. Returns the thread's
    /// status after that round, even if more have followed.
    ///
    /// # Errors
    ///
    /// `Timeout` at the deadline, or if the thread waits for the caller, or is it. `Stopped` once
    /// the thread was stopped or has ended. All name `what`, the subject of the wait.
    pub(crate) fn wait(&self, what: &str, deadline: Deadline) -> Result<S, Error> {
        let clock = Clock::system();
        let mut state = self.state.lock();
        let [_, next] = &state.tasks;
        let waiting = next.as_ref().map(|next| next.wait(what)).transpose();
        let _waiting = waiting.map_err(|_circle| {
            let text = format!("{what}: its own thread cannot wait for it");
            Error::new(ErrorKind::Timeout, text)
        })?;
        let ticket = self.order(&mut state);
        state.outcomes.insert(ticket, None);
        let outcome = loop {
            if let Some(status) = state.outcomes.get_mut(&ticket).and_then(Option::take) {
                break Ok(status);
            }
            if state.has_ended {
                break Err(Error::stopped(what));
            }
            if clock.has_passed(deadline) {
                let text = format!("{what}: the caller's deadline passed");
                break Err(Error::new(ErrorKind::Timeout, text));
            }
            state = clock.wait_until(&self.state, state, deadline);
        };
        state.outcomes.remove(&ticket);
        outcome
    }

    /// The thread's status after its last round, and when it began the step of a present one.
    pub(crate) fn status(&self) -> (S, Option<Instant>) {
        let state = self.state.lock();
        (state.status.clone(), state.step)
    }

    /// Notes when the thread begins a step of its round; `None` after the last one.
    pub(crate) fn step(&self, now: Option<Instant>) {
        self.state.lock().step = now;
    }

    /// Whether a caller waits for a round.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.state.lock().outcomes.is_empty()
    }

    /// Begins a round, on the thread. Returns the number that [`end`](Self::end) needs.
    pub(crate) fn begin(&self) -> u64 {
        let mut state = self.state.lock();
        state.tasks.swap(0, 1);
        state.tasks[1] = Some(Task::begin());
        state.asked
    }

    /// Ends the round that began with this number.
    pub(crate) fn end(&self, began: u64, status: S) {
        let mut state = self.state.lock();
        (state.tasks[0], state.step) = (None, None);
        for (_, outcome) in state.outcomes.range_mut(..=began) {
            outcome.get_or_insert_with(|| status.clone());
        }
        let before = std::mem::replace(&mut state.status, status);
        drop(state);
        self.state.notify_all();
        drop(before);
    }

    /// A guard for the thread. The stop, and the guard's drop, even by a panic, end all waits.
    /// After the stop the thread may do a last round.
    pub(crate) fn until_dropped(&self, stop: &StopToken) -> RoundsEnd {
        let state = Arc::clone(&self.state);
        state.lock().tasks[1] = Some(Task::begin());
        let end: Arc<dyn Wake> = Arc::new(move || {
            state.lock().has_ended = true;
            state.notify_all();
        });
        let at_stop = stop.register(&end);
        RoundsEnd {
            end,
            _at_stop: at_stop,
        }
    }
}
