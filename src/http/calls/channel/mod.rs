//! A channel with room for one item. The stop and the limit of a call end the wait for an item.
//!
//! A channel of crossbeam allocates 640 bytes, and the allocator's cache keeps seven of each size
//! for each thread. That is too much for threads that watch.

#[cfg(all(test, shuttle))]
mod schedules;

use std::fmt::Display;

use super::call_context::CallContext;
use super::interrupt::Interrupt;
use super::slots::Slot;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::guard::guard_call;
use crate::jobs::Job;
use crate::sync::{Arc, Monitor, Rank};
use crate::worker::Wake;

/// The sending end.
pub(crate) struct ItemSender<T>(Arc<Monitor<Channel<T>>>);

/// The receiving end.
pub(crate) struct ItemReceiver<T>(Arc<Monitor<Channel<T>>>);

struct Channel<T> {
    item: Option<T>,
    sender_gone: bool,
    receiver_gone: bool,
}

/// Makes the two ends of a channel.
pub(crate) fn channel<T>() -> (ItemSender<T>, ItemReceiver<T>) {
    let channel = Channel {
        item: None,
        sender_gone: false,
        receiver_gone: false,
    };
    let shared = Arc::new(Monitor::ranked(Rank::CHANNEL, channel));
    (ItemSender(Arc::clone(&shared)), ItemReceiver(shared))
}

/// Makes a job of `work`, and the receiver of its results. `port` names the work if it panics. The
/// work may send results before its last one.
pub(crate) fn answering<T: Send + 'static>(
    port: impl Display + Send + 'static,
    work: impl FnOnce(&ItemSender<Result<T, Error>>) -> Result<T, Error> + Send + 'static,
) -> (Job, ItemReceiver<Result<T, Error>>) {
    let (reply, answer) = channel();
    let job = move |begun: Result<(), Error>| {
        let result = begun.and_then(|()| guard_call(port, || work(&reply)));
        // The caller may be gone. Then the result is dropped.
        let _sent = reply.send(result, None);
        None
    };
    (Box::new(job), answer)
}

impl<T> Channel<T> {
    fn is_full(&self) -> bool {
        self.item.is_some() && !self.receiver_gone
    }
}

impl<T> ItemSender<T> {
    /// Sends `item`. Blocks while there is no room, without the slot of `call`, and until it has
    /// that slot again.
    ///
    /// # Errors
    ///
    /// `Stopped` when the receiver is gone; the stop or the deadline of `call`.
    pub(crate) fn send(&self, item: T, call: Option<&CallContext>) -> Result<(), Interrupt> {
        let mut state = self.0.lock();
        if let Some(call) = call
            && state.is_full()
        {
            drop(state);
            call.release_slot();
            state = self.0.lock();
        }
        while state.is_full() {
            state = self.0.wait(state);
        }
        if state.receiver_gone {
            return Err(Interrupt::Stopped);
        }
        state.item = Some(item);
        drop(state);
        self.0.notify_all();
        call.map_or(Ok(()), CallContext::resume)
    }

    /// Sends the last item. Blocks while there is no room, without `slot`.
    pub(crate) fn send_last(&self, item: T, slot: &Slot) {
        let is_full = self.0.lock().is_full();
        // Only this end fills the channel.
        if is_full {
            slot.release();
        }
        // Without a receiver, the item is dropped.
        let _sent = self.send(item, None);
    }

    /// Whether the receiver is still there.
    pub(crate) fn has_receiver(&self) -> bool {
        !self.0.lock().receiver_gone
    }
}

impl<T: Send + 'static> ItemReceiver<T> {
    /// Receives the next item. Blocks within the limits of `call`, without its slot. `None` after
    /// the last item of a sender that is gone.
    ///
    /// # Errors
    ///
    /// The stop, or the limit.
    pub(crate) fn receive(&self, call: &CallContext) -> Result<Option<T>, Interrupt> {
        call.release_slot();
        let taken = self.wait(call)?;
        call.resume()?;
        Ok(taken)
    }

    fn wait(&self, call: &CallContext) -> Result<Option<T>, Interrupt> {
        let wake: Arc<dyn Wake> = Arc::<Monitor<Channel<T>>>::clone(&self.0);
        let _registered = call.stop().register(&wake);
        let look = |state: &mut Channel<T>| match state.item.take() {
            Some(item) => Some(Ok(Some(item))),
            None if call.stop().is_stopped() => Some(Err(Interrupt::Stopped)),
            None => state.sender_gone.then_some(Ok(None)),
        };
        let until = call.until;
        let state = self.0.lock();
        let (taken, state) = Clock::system().wait_for(&self.0, state, until.deadline, look);
        drop(state);
        self.0.notify_all();
        taken.unwrap_or(Err(Interrupt::Limit(until.limit)))
    }

    /// Receives the one expected item. Blocks within the limits of `call`.
    ///
    /// # Errors
    ///
    /// The stop, the limit, or `Resources` when the sender is gone.
    pub(crate) fn receive_one(&self, call: &CallContext) -> Result<T, Interrupt> {
        self.receive(call)?.ok_or_else(|| {
            let message = "given up: its thread panicked, or its client was dropped";
            Interrupt::Failed(Error::new(ErrorKind::Resources, message))
        })
    }
}

impl<T: Send + 'static> ItemReceiver<Result<T, Error>> {
    /// Receives the one expected result. Blocks within the limits of `call`.
    ///
    /// # Errors
    ///
    /// The stop, the limit, or the error of the result.
    pub(crate) fn result(&self, call: &CallContext) -> Result<T, Interrupt> {
        self.receive_one(call)?.map_err(Interrupt::Failed)
    }
}

impl<T> Drop for ItemSender<T> {
    fn drop(&mut self) {
        self.0.lock().sender_gone = true;
        self.0.notify_all();
    }
}

impl<T> Drop for ItemReceiver<T> {
    fn drop(&mut self) {
        let left = {
            let mut state = self.0.lock();
            state.receiver_gone = true;
            state.item.take()
        };
        self.0.notify_all();
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::admission::Urgency;
    use super::super::call_context::NamedDeadline;
    use super::super::interrupt::Limit;
    use super::super::slots::Slots;
    use super::*;
    use crate::clock::Deadline;
    use crate::list_watch::RequestProgress;
    use crate::tests::until::until;
    use crate::worker::{StopSource, Worker};

    fn call(source: &StopSource, until: NamedDeadline) -> CallContext {
        CallContext::new(&source.token(), until).unwrap()
    }

    #[test]
    fn items_come_in_order_one_at_a_time() {
        let (sender, receiver) = channel();
        let sending = Worker::spawn("t-send", move |_| {
            for number in 0..100 {
                sender.send(number, None).unwrap();
            }
        });
        let call = call(&StopSource::new(), NamedDeadline::NEVER);
        for number in 0..100 {
            assert_eq!(receiver.receive(&call).unwrap(), Some(number));
        }
        assert_eq!(receiver.receive(&call).unwrap(), None);
        sending.unwrap().join().unwrap();
    }

    #[test]
    fn a_stop_a_limit_and_a_sender_that_is_gone_end_the_wait() {
        let source = StopSource::new();
        let (sender, receiver) = channel::<()>();
        let until = NamedDeadline::NEVER.within(Duration::from_millis(1), Limit::Connect);
        let late = receiver.receive(&call(&source, until));
        assert!(matches!(late, Err(Interrupt::Limit(Limit::Connect(_)))));
        source.stop();
        let stopped = receiver.receive(&call(&source, NamedDeadline::NEVER));
        assert!(matches!(stopped, Err(Interrupt::Stopped)));
        drop(sender);
        let (sender, receiver) = channel::<()>();
        drop(sender);
        let gone = receiver.receive_one(&call(&StopSource::new(), NamedDeadline::NEVER));
        assert!(matches!(gone, Err(Interrupt::Failed(_))));
    }

    /// A caller that reads slowly must not keep a slot from other requests.
    #[test]
    fn the_last_item_gives_the_slot_away_only_while_there_is_no_room() {
        let (slots, source) = (Slots::new(1), StopSource::new());
        let progress = RequestProgress::new("t".into());
        let enter = || {
            let urgency = Urgency::new(true);
            slots.enter(&urgency, &progress, &source.token(), Deadline::NEVER)
        };
        let slot = enter().unwrap();
        let (sender, receiver) = channel();
        sender.send_last(1, &slot);
        assert_eq!(slots.free(), 0);
        let sending = Worker::spawn("t-last", move |_| sender.send_last(2, &slot)).unwrap();
        until(|| slots.free() == 1);
        let call = call(&source, NamedDeadline::NEVER);
        assert_eq!(receiver.receive(&call).unwrap(), Some(1));
        assert_eq!(receiver.receive(&call).unwrap(), Some(2));
        sending.join().unwrap();
    }

    #[test]
    fn a_sender_does_not_wait_for_a_receiver_that_is_gone() {
        let (sender, receiver) = channel();
        sender.send(1, None).unwrap();
        let waiting = Worker::spawn("t-full", move |_| {
            let gone = sender.send(2, None);
            assert!(matches!(gone, Err(Interrupt::Stopped)));
        });
        drop(receiver);
        waiting.unwrap().join().unwrap();
    }

    /// The caller's deadline is no stop, whichever end sees it first.
    #[test]
    fn a_deadline_that_passes_while_a_sender_waits_for_its_slot_is_a_limit() {
        let (slots, source) = (Slots::new(1), StopSource::new());
        let progress = RequestProgress::new("t".into());
        let urgency = Urgency::new(false);
        let enter = |deadline| slots.enter(&urgency, &progress, &source.token(), deadline);
        let slot = enter(Deadline::NEVER).unwrap();
        let now = Deadline::at(Clock::system().now());
        let call = call(&source, NamedDeadline::caller(now)).with_slot(slot);
        call.release_slot();
        let _other = enter(Deadline::NEVER).unwrap();
        let (sender, _receiver) = channel();
        let late = sender.send(1, Some(&call));
        assert!(matches!(late, Err(Interrupt::Limit(Limit::Deadline))));
    }
}
