//! Rounds of work on a thread: whoever asks for one can wait until one that began after that is
//! over.

#[cfg(all(test, shuttle))]
mod schedules;

use std::collections::BTreeMap;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::clock::{Clock, Deadline};
use crate::error::{Error, ErrorKind};
use crate::sync::{Arc, Monitor, Rank};

/// What is asked of a thread, and what it has done. `S` is how it stands after a round.
pub(crate) struct Rounds<S> {
    state: Arc<Monitor<RoundsState<S>>>,
    wake: Sender<()>,
}

struct RoundsState<S> {
    asked: u64,
    has_ended: bool,
    status: S,
    /// Of each round that somebody waits for: how the thread stood after it, once it is over.
    outcomes: BTreeMap<u64, Option<S>>,
}

/// Whoever waits learns that no more rounds come.
pub(crate) struct RoundsEnd<'a, S>(&'a Rounds<S>);

impl<S> Drop for RoundsEnd<'_, S> {
    fn drop(&mut self) {
        self.0.state.lock().has_ended = true;
        self.0.state.notify_all();
    }
}

impl<S: Clone + Send + 'static> Rounds<S> {
    /// Rounds of a thread that has done none, and the channel that wakes it.
    pub(crate) fn new(status: S) -> (Self, Receiver<()>) {
        let (wake, woken) = bounded(1);
        let state = RoundsState {
            asked: 0,
            has_ended: false,
            status,
            outcomes: BTreeMap::new(),
        };
        let state = Arc::new(Monitor::ranked(Rank::ROUNDS, state));
        (Self { state, wake }, woken)
    }

    /// Orders a round that begins after this.
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

    /// Orders a round that begins after this, waits until it is over, and returns how the thread
    /// stood then, however many rounds came after it.
    ///
    /// # Errors
    ///
    /// `Timeout` at the deadline, `Stopped` once the thread has ended; both say `what` was waited
    /// for.
    pub(crate) fn wait(&self, what: &str, deadline: Deadline) -> Result<S, Error> {
        let clock = Clock::system();
        let mut state = self.state.lock();
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

    /// How the thread stood after its last round.
    pub(crate) fn status(&self) -> S {
        self.state.lock().status.clone()
    }

    /// Whether somebody waits for a round.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.state.lock().outcomes.is_empty()
    }

    /// The thread begins a round. Returns the number that [`end`](Self::end) needs.
    pub(crate) fn begin(&self) -> u64 {
        self.state.lock().asked
    }

    /// The round is over that began with this number.
    pub(crate) fn end(&self, began: u64, status: S) {
        let mut state = self.state.lock();
        for (_, outcome) in state.outcomes.range_mut(..=began) {
            outcome.get_or_insert_with(|| status.clone());
        }
        let before = std::mem::replace(&mut state.status, status);
        drop(state);
        self.state.notify_all();
        drop(before);
    }

    /// To be held by the thread: its drop, also by a panic, ends all waits.
    pub(crate) fn until_dropped(&self) -> RoundsEnd<'_, S> {
        RoundsEnd(self)
    }
}
