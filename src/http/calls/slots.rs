//! Slots bound the working requests of a client. A request holds a slot while it computes or
//! writes, and none while its server is silent.

use std::time::{Duration, Instant};

use super::admission::{Admission, AdmissionRefusal, QueuedRequest, Supply, Urgency};
use super::interrupt::{Interrupt, Limit};
use crate::clock::{Clock, Deadline};
use crate::error::debug_of;
use crate::list_watch::{RequestPhase, RequestProgress};
use crate::sync::{Arc, Mutex, Rank, Wake};
use crate::worker::StopToken;

/// The total time of a request's waits before it releases its slot. A healthy server answers within
/// this time. A dead server costs each slot no more than this time.
const PATIENCE: Duration = Duration::from_millis(100);

/// The slots of one client.
pub(crate) struct Slots(Admission<FreeSlots>);

/// A request that begins, and that was queued for a slot if none was free. Its drop takes it out of
/// the queue.
pub(crate) struct SlotRequest {
    slots: Admission<FreeSlots>,
    waiter: QueuedRequest,
    /// The function that gets the slot; `None` once its call has begun.
    on_slot: Arc<Mutex<Option<OnSlot>>>,
}

type OnSlot = Box<dyn FnOnce(Arc<Slot>) + Send>;

/// How many slots are free.
struct FreeSlots(usize);

/// A request's slot. The clones of the request's call context share it. One thread uses it at a
/// time.
pub(crate) struct Slot {
    slots: Admission<FreeSlots>,
    urgency: Urgency,
    /// The remaining time for waits; `None` after the slot was released.
    patience: Mutex<Option<Duration>>,
}

impl Supply for FreeSlots {
    fn available(&self, now: Instant, before: usize) -> Option<Instant> {
        (before < self.0).then_some(now)
    }

    fn take(&mut self, _now: Instant) {
        self.0 = self.0.saturating_sub(1);
    }
}

impl Slots {
    pub(crate) fn new(slots: usize) -> Self {
        Self(Admission::new(FreeSlots(slots), &Clock::system()))
    }

    /// Takes a slot for a request. Blocks until a slot is free, the stop is raised, or the deadline
    /// passes.
    ///
    /// # Errors
    ///
    /// The stop, or the caller's deadline.
    pub(crate) fn enter(
        &self,
        urgency: &Urgency,
        progress: &RequestProgress,
        stop: &StopToken,
        deadline: Deadline,
    ) -> Result<Arc<Slot>, Interrupt> {
        let queued = |behind| progress.enter(RequestPhase::Queued { behind });
        let waiter = QueuedRequest::new(urgency, false);
        let admitted = self.0.admit(&waiter, stop, deadline, queued);
        admitted.map_err(interrupt)?;
        Ok(Slot::taken(&self.0, urgency))
    }

    /// Takes a slot for a request, and calls `on_slot` with it: at once if one is free, else later
    /// on the thread that releases one. Never blocks.
    pub(crate) fn enter_later(
        &self,
        urgency: &Urgency,
        progress: &RequestProgress,
        on_slot: impl FnOnce(Arc<Slot>) + Send + 'static,
    ) -> SlotRequest {
        let on_slot: OnSlot = Box::new(on_slot);
        let on_slot = Arc::new(Mutex::ranked(Rank::HELD_SLOT, Some(on_slot)));
        let (slots, own, called) = (self.0.clone(), urgency.clone(), Arc::clone(&on_slot));
        let on_turn: Arc<dyn Wake> = Arc::new(move || {
            let slot = Slot::taken(&slots, &own);
            let on_slot = called.lock().take();
            if let Some(on_slot) = on_slot {
                on_slot(slot);
            }
        });
        let waiter = QueuedRequest::without_thread(urgency, on_turn);
        let queued = |behind| progress.enter(RequestPhase::Queued { behind });
        self.0.admit_later(&waiter, queued);
        SlotRequest {
            slots: self.0.clone(),
            waiter,
            on_slot,
        }
    }

    /// Moves a queued request before background requests. Never blocks.
    pub(crate) fn expedite(&self, urgency: &Urgency) {
        self.0.expedite(urgency);
    }
}

fn interrupt(refusal: AdmissionRefusal) -> Interrupt {
    match refusal {
        AdmissionRefusal::Stopped => Interrupt::Stopped,
        AdmissionRefusal::TooLate { .. } => Interrupt::Limit(Limit::Deadline),
    }
}

impl Drop for SlotRequest {
    fn drop(&mut self) {
        let is_queued = self.on_slot.lock().is_some();
        if is_queued {
            self.slots.leave(&self.waiter);
        }
    }
}

impl Slot {
    /// The slot that was just taken.
    fn taken(slots: &Admission<FreeSlots>, urgency: &Urgency) -> Arc<Self> {
        Arc::new(Self {
            slots: slots.clone(),
            urgency: urgency.clone(),
            patience: Mutex::ranked(Rank::HELD_SLOT, Some(PATIENCE)),
        })
    }

    /// How long a wait may take before the slot is released; `None` after it was released.
    pub(crate) fn patience(&self) -> Option<Duration> {
        *self.patience.lock()
    }

    /// Adds the time of a wait. Releases the slot when its patience is used up.
    pub(crate) fn add_wait(&self, time: Duration) {
        let used_up = self.patience.lock().as_mut().is_some_and(|left| {
            *left = left.saturating_sub(time);
            left.is_zero()
        });
        if used_up {
            self.release();
        }
    }

    /// Releases the slot before a wait of unknown length.
    pub(crate) fn release(&self) {
        let held = self.patience.lock().take();
        if held.is_some() {
            self.slots.change(|free| free.0 = free.0.saturating_add(1));
        }
    }

    /// Takes a slot again after a wait. Blocks until a slot is free, the stop is raised, or the
    /// deadline passes.
    ///
    /// # Errors
    ///
    /// The stop, or the caller's deadline.
    pub(crate) fn resume(&self, stop: &StopToken, deadline: Deadline) -> Result<(), Interrupt> {
        if self.patience().is_none() {
            let waiter = QueuedRequest::new(&self.urgency, true);
            let resumed = self.slots.admit(&waiter, stop, deadline, |_behind| {});
            resumed.map_err(interrupt)?;
            *self.patience.lock() = Some(PATIENCE);
        }
        Ok(())
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.release();
    }
}

debug_of!([] Slot, |it| urgent: it.urgency.is_urgent(), ..);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::StopSource;

    impl Slots {
        pub(crate) fn free(&self) -> usize {
            self.0.look(|free| free.0)
        }
    }

    fn enter(slots: &Slots, stop: &StopToken, deadline: Deadline) -> Result<Arc<Slot>, Interrupt> {
        let progress = RequestProgress::new("t".into());
        slots.enter(&Urgency::new(true), &progress, stop, deadline)
    }

    #[test]
    fn a_slot_is_given_back_when_its_patience_is_used_up_by_many_short_waits() {
        let (slots, never) = (Slots::new(2), StopToken::never());
        let slot = enter(&slots, &never, Deadline::NEVER).unwrap();
        for _ in 0..9 {
            slot.add_wait(PATIENCE / 10);
            assert!(slot.patience().is_some());
        }
        slot.add_wait(PATIENCE / 10);
        assert_eq!(slot.patience(), None);
        assert_eq!(slots.free(), 2);
        slot.resume(&never, Deadline::NEVER).unwrap();
        assert_eq!(slot.patience(), Some(PATIENCE));
        assert_eq!(slots.free(), 1);
        drop(slot);
        assert_eq!(slots.free(), 2);
    }

    #[test]
    fn a_stop_or_the_callers_deadline_ends_the_wait_for_a_slot() {
        let (slots, source) = (Slots::new(1), StopSource::new());
        let held = enter(&slots, &source.token(), Deadline::NEVER).unwrap();
        let passed = Deadline::at(Clock::system().now());
        let late = enter(&slots, &source.token(), passed).unwrap_err();
        assert!(
            matches!(late, Interrupt::Limit(Limit::Deadline)),
            "{late:?}"
        );
        source.stop();
        let stopped = enter(&slots, &source.token(), Deadline::NEVER).unwrap_err();
        assert!(matches!(stopped, Interrupt::Stopped), "{stopped:?}");
        drop(held);
        drop(enter(&slots, &StopToken::never(), Deadline::NEVER).unwrap());
        assert_eq!(slots.free(), 1);
    }
}
