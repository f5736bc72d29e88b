//! Hands one item after the other from one thread to another; a stop and a limit end the wait for
//! it.
//!
//! It takes the place of a channel on threads that watch: a channel is an allocation of 640 bytes,
//! and the allocator's thread cache keeps seven of each size it has seen.

use super::call_context::Blocking;
use super::interrupt::Halt;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::sync::{Arc, Monitor, Rank};
use crate::worker::Wake;

/// The giving end.
pub(crate) struct Giver<T>(Arc<Monitor<Handover<T>>>);

/// The taking end.
pub(crate) struct Taker<T>(Arc<Monitor<Handover<T>>>);

struct Handover<T> {
    item: Option<T>,
    /// Whether the taker waits for the next item.
    awaited: bool,
    giver_gone: bool,
    taker_gone: bool,
}

/// Two ends of a queue with room for one item.
pub(crate) fn handover<T>() -> (Giver<T>, Taker<T>) {
    let handover = Handover {
        item: None,
        awaited: false,
        giver_gone: false,
        taker_gone: false,
    };
    let shared = Arc::new(Monitor::ranked(Rank::HANDOVER, handover));
    (Giver(Arc::clone(&shared)), Taker(shared))
}

impl<T> Handover<T> {
    fn is_full(&self) -> bool {
        self.item.is_some() && !self.taker_gone
    }
}

impl<T> Giver<T> {
    /// Gives `item`; blocks while there is no room, without the slot of `call`. `false` when nobody
    /// takes it any more.
    pub(crate) fn give(&self, item: T, call: Option<&Blocking>) -> bool {
        let mut state = self.0.lock();
        if let Some(call) = call
            && state.is_full()
        {
            drop(state);
            call.give_slot_back();
            state = self.0.lock();
        }
        while state.is_full() {
            state = self.0.wait(state);
        }
        if state.taker_gone {
            return false;
        }
        state.item = Some(item);
        drop(state);
        self.0.notify_all();
        call.is_none_or(|call| call.resume().is_ok())
    }

    /// Whether the taker waits for the next item, or is gone.
    pub(crate) fn is_awaited(&self) -> bool {
        let state = self.0.lock();
        state.awaited || state.taker_gone
    }

    /// Whether somebody may still take.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.0.lock().taker_gone
    }
}

impl<T: Send + 'static> Taker<T> {
    /// Takes the next item; blocks by `call`, without its slot. `None` when the giver is gone and
    /// nothing is left.
    ///
    /// # Errors
    ///
    /// The stop, or the limit.
    pub(crate) fn take(&self, call: &Blocking) -> Result<Option<T>, Halt> {
        call.give_slot_back();
        let taken = self.wait(call)?;
        call.resume()?;
        Ok(taken)
    }

    fn wait(&self, call: &Blocking) -> Result<Option<T>, Halt> {
        let wake: Arc<dyn Wake> = Arc::<Monitor<Handover<T>>>::clone(&self.0);
        let _registered = call.stop.register(&wake);
        let look = |state: &mut Handover<T>| match state.item.take() {
            Some(item) => {
                state.awaited = false;
                Some(Ok(Some(item)))
            }
            None if call.stop.is_stopped() => Some(Err(Halt::Stopped)),
            None => state.giver_gone.then_some(Ok(None)),
        };
        let until = call.until;
        let mut state = self.0.lock();
        state.awaited = true;
        let (taken, state) = Clock::system().wait_for(&self.0, state, until.deadline, look);
        drop(state);
        self.0.notify_all();
        taken.unwrap_or(Err(Halt::Limit(until.limit)))
    }

    /// Takes the one item that was promised; blocks by `call`.
    ///
    /// # Errors
    ///
    /// The stop, the limit, or that the promise was broken.
    pub(crate) fn take_one(&self, call: &Blocking) -> Result<T, Halt> {
        self.take(call)?.ok_or_else(|| {
            let message = "given up: its thread panicked, or its client was dropped";
            Halt::Failed(Error::new(ErrorKind::Resources, message))
        })
    }
}

impl<T: Send + 'static> Taker<Result<T, Error>> {
    /// Takes the answer that was promised; blocks by `call`.
    ///
    /// # Errors
    ///
    /// The stop, the limit, or the error that is the answer.
    pub(crate) fn answer(&self, call: &Blocking) -> Result<T, Halt> {
        self.take_one(call)?.map_err(Halt::Failed)
    }
}

impl<T> Drop for Giver<T> {
    fn drop(&mut self) {
        self.0.lock().giver_gone = true;
        self.0.notify_all();
    }
}

impl<T> Drop for Taker<T> {
    fn drop(&mut self) {
        let left = {
            let mut state = self.0.lock();
            state.taker_gone = true;
            state.item.take()
        };
        self.0.notify_all();
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::call_context::Until;
    use super::super::interrupt::Limit;
    use super::*;
    use crate::worker::{StopSource, Worker};

    fn call(source: &StopSource, until: Until) -> Blocking {
        Blocking::new(&source.token(), until).unwrap()
    }

    #[test]
    fn items_come_in_order_one_at_a_time() {
        let (giver, taker) = handover();
        let giving = Worker::spawn("t-give", move |_| {
            for number in 0..100 {
                assert!(giver.give(number, None));
            }
        });
        let call = call(&StopSource::new(), Until::NEVER);
        for number in 0..100 {
            assert_eq!(taker.take(&call).unwrap(), Some(number));
        }
        assert_eq!(taker.take(&call).unwrap(), None);
        giving.unwrap().join().unwrap();
    }

    #[test]
    fn a_stop_a_limit_and_a_broken_promise_end_the_wait() {
        let source = StopSource::new();
        let (giver, taker) = handover::<()>();
        let until = Until::NEVER.within(Duration::from_millis(1), Limit::Connect);
        let late = taker.take(&call(&source, until));
        assert!(matches!(late, Err(Halt::Limit(Limit::Connect(_)))));
        source.stop();
        let stopped = taker.take(&call(&source, Until::NEVER));
        assert!(matches!(stopped, Err(Halt::Stopped)));
        drop(giver);
        let (giver, taker) = handover::<()>();
        drop(giver);
        let broken = taker.take_one(&call(&StopSource::new(), Until::NEVER));
        assert!(matches!(broken, Err(Halt::Failed(_))));
    }

    #[test]
    fn a_giver_does_not_wait_for_a_taker_that_is_gone() {
        let (giver, taker) = handover();
        assert!(giver.give(1, None));
        let waiting = Worker::spawn("t-full", move |_| assert!(!giver.give(2, None))).unwrap();
        drop(taker);
        waiting.join().unwrap();
    }
}
