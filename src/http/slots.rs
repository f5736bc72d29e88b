//! Slots for work: a request holds one while it computes or writes, and none while its peer is
//! silent.
//!
//! Lists and the opening of watches run on threads of their own: a stack stays resident as deep as
//! it was ever used, and a watching thread's is to stay shallow. So there are as many threads as
//! slots, and one more for each request whose peer is silent.

use std::fmt;
use std::time::{Duration, Instant};

use super::admission::{Admission, Refusal, Supply, Urgency, Waiter};
use super::halt::{Halt, Limit};
use super::handover::Taker;
use super::thread_pool::{ThreadPool, answering};
use crate::clock::{Clock, Deadline};
use crate::error::Error;
use crate::list_watch::{RequestPhase, RequestProgress};
use crate::sync::{Arc, Mutex};
use crate::worker::StopToken;

/// A request waits so long with its slot in hand, all its waits since it got the slot together: a
/// healthy server is asked by as many requests as there are slots, and a dead one costs each slot
/// no more than this.
const PATIENCE: Duration = Duration::from_millis(100);

/// The slots of one client.
pub(crate) struct Slots(Admission<FreeSlots>);

/// How many slots are free.
struct FreeSlots(usize);

/// A request's slot. The clones of the request's context share it; the request uses it on one
/// thread at a time.
pub(crate) struct Slot {
    slots: Admission<FreeSlots>,
    urgency: Urgency,
    /// Waits may still take so long together; `None` once it was given back.
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

    /// A slot for a request. Blocks until one is free, the stop, or the deadline.
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
    ) -> Result<Arc<Slot>, Halt> {
        let queued = |behind| progress.enter(RequestPhase::Queued { behind });
        let admitted = self
            .0
            .admit(&Waiter::new(urgency, false), stop, deadline, queued);
        admitted.map_err(halt)?;
        Ok(Arc::new(Slot {
            slots: self.0.clone(),
            urgency: urgency.clone(),
            patience: Mutex::new(Some(PATIENCE)),
        }))
    }

    /// Lets a request go before the background's if it is queued. Never blocks.
    pub(crate) fn expedite(&self, urgency: &Urgency) {
        self.0.expedite(urgency);
    }
}

#[cfg(test)]
impl Slots {
    pub(super) fn free(&self) -> usize {
        self.0.look(|free| free.0)
    }
}

fn halt(refusal: Refusal) -> Halt {
    match refusal {
        Refusal::Stopped => Halt::Stopped,
        Refusal::TooLate { .. } => Halt::Limit(Limit::Deadline),
    }
}

impl Slot {
    /// How long a wait may take before the slot is to be given back; `None` where that has
    /// happened.
    pub(crate) fn patience(&self) -> Option<Duration> {
        *self.patience.lock()
    }

    /// Told how long a wait took; gives the slot back when its patience is used up.
    pub(crate) fn has_waited(&self, time: Duration) {
        let used_up = {
            let mut patience = self.patience.lock();
            let Some(left) = &mut *patience else {
                return;
            };
            *left = left.saturating_sub(time);
            left.is_zero()
        };
        if used_up {
            self.give_back();
        }
    }

    /// Gives the slot back before a wait of unknown length.
    pub(crate) fn give_back(&self) {
        let held = self.patience.lock().take();
        if held.is_some() {
            self.slots.change(|free| free.0 = free.0.saturating_add(1));
        }
    }

    /// Takes a slot again, behind a wait. Blocks until one is free, the stop, or the deadline.
    ///
    /// # Errors
    ///
    /// The stop, or the caller's deadline.
    pub(crate) fn resume(&self, stop: &StopToken, deadline: Deadline) -> Result<(), Halt> {
        if self.patience().is_none() {
            let waiter = Waiter::new(&self.urgency, true);
            let resumed = self.slots.admit(&waiter, stop, deadline, |_behind| {});
            resumed.map_err(halt)?;
            *self.patience.lock() = Some(PATIENCE);
        }
        Ok(())
    }

    /// Runs `job` with this slot on a thread of `asking`. `port` names the program's code that runs
    /// in it. A thread of `starters` starts that thread: a start leaves traces in the stack and the
    /// allocator cache of whoever does it.
    ///
    /// Without a thread the job waits, without the slot, for a thread of another request.
    pub(crate) fn run<T: Send + 'static>(
        self: &Arc<Self>,
        (asking, starters): (&ThreadPool, &ThreadPool),
        port: String,
        stop: &StopToken,
        job: impl FnOnce(Arc<Self>) -> Result<T, Error> + Send + 'static,
    ) -> Taker<Result<T, Error>> {
        let (slot, stop) = (Arc::clone(self), stop.clone());
        let (job, answer) = answering(port.clone(), move || {
            let resumed = slot.resume(&stop, Deadline::NEVER);
            resumed.map_err(|_stopped| Error::stopped(&port))?;
            job(slot)
        });
        if let Some(thread) = asking.submit(job) {
            let slot = Arc::clone(self);
            let start = Box::new(move |_| {
                if !thread.start() {
                    slot.give_back();
                }
            });
            if let Some(starter) = starters.submit(start) {
                starter.start();
            }
        }
        answer
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot")
            .field("urgent", &self.urgency.is_urgent())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

    use super::super::blocking::{Blocking, Until};
    use super::super::thread_pool::Jobs;
    use super::*;
    use crate::error::ErrorKind;
    use crate::worker::{StopSource, Worker};

    const SLOTS: usize = 4;

    fn call() -> Blocking {
        Blocking::new(&StopToken::never(), Until::NEVER).unwrap()
    }

    fn progress() -> RequestProgress {
        RequestProgress::new("t".into())
    }

    /// Slots, and the threads of their requests.
    struct Client {
        slots: Slots,
        asking: ThreadPool,
        starters: ThreadPool,
    }

    impl Client {
        fn new(slots: usize) -> Arc<Self> {
            Arc::new(Self {
                slots: Slots::new(slots),
                asking: ThreadPool::new("t", usize::MAX, Jobs::Wait),
                starters: ThreadPool::new("t-start", 1, Jobs::Compute),
            })
        }

        fn enter(&self, urgency: &Urgency) -> Arc<Slot> {
            let never = StopToken::never();
            let slot = self
                .slots
                .enter(urgency, &progress(), &never, Deadline::NEVER);
            slot.unwrap()
        }

        fn run<T: Send + 'static>(
            &self,
            urgency: &Urgency,
            job: impl FnOnce(Arc<Slot>) -> Result<T, Error> + Send + 'static,
        ) -> Taker<Result<T, Error>> {
            let threads = (&self.asking, &self.starters);
            let port = "the decoder".to_owned();
            let slot = self.enter(urgency);
            slot.run(threads, port, &StopToken::never(), job)
        }

        fn free(&self) -> usize {
            self.slots.free()
        }
    }

    /// A job that says that it runs, and goes on when it is told to.
    struct Gate {
        begun: Sender<usize>,
        open: Receiver<()>,
    }

    impl Gate {
        fn pass(&self, number: usize) {
            self.begun.send(number).unwrap();
            self.open.recv().unwrap();
        }
    }

    fn gate() -> (Arc<Gate>, Receiver<usize>, Sender<()>) {
        let (begun, begins) = unbounded();
        let (opens, open) = unbounded();
        (Arc::new(Gate { begun, open }), begins, opens)
    }

    /// A1: as many jobs work as there are slots; those that wait without a slot are not counted.
    #[test]
    fn a1_a_job_that_gives_its_slot_back_lets_the_next_one_work() {
        let client = Client::new(SLOTS);
        let (gate, begins, opens) = gate();
        let mut answers = Vec::new();
        for number in 0..3 * SLOTS {
            let gate = Arc::clone(&gate);
            let job = move |slot: Arc<Slot>| {
                slot.give_back();
                gate.pass(number);
                slot.resume(&StopToken::never(), Deadline::NEVER)
                    .map_err(|_halt| Error::stopped("t"))
            };
            answers.push(client.run(&Urgency::new(false), job));
        }
        // All of them are under way at the same time, three times as many as there are slots.
        let begun: std::collections::BTreeSet<_> = begins.iter().take(3 * SLOTS).collect();
        assert_eq!(begun.len(), 3 * SLOTS);
        for _ in 0..3 * SLOTS {
            opens.send(()).unwrap();
        }
        for answer in answers {
            answer.answer(&call()).unwrap();
        }
    }

    /// A1: a reader may come for an object whose list is queued already.
    #[test]
    fn a1_jobs_that_work_are_bounded_and_urgent_ones_overtake() {
        let client = Client::new(1);
        let (gate, begins, opens) = gate();
        let urgencies = [false, false, false, true].map(Urgency::new);
        let mut workers = Vec::new();
        for (number, urgency) in urgencies.iter().cloned().enumerate() {
            let (asking, gate) = (Arc::clone(&client), Arc::clone(&gate));
            let progress = progress();
            let told = progress.clone();
            let worker = Worker::spawn(format!("t-{number}"), move |stop| {
                let slot = asking
                    .slots
                    .enter(&urgency, &told, stop, Deadline::NEVER)
                    .unwrap();
                let threads = (&asking.asking, &asking.starters);
                let job = move |_slot: Arc<Slot>| {
                    gate.pass(number);
                    Ok(())
                };
                let answer = slot.run(threads, "t".to_owned(), stop, job);
                drop(slot);
                answer.answer(&call()).unwrap();
            });
            workers.push(worker.unwrap());
            if number == 0 {
                assert_eq!(begins.recv(), Ok(0));
            } else {
                while !matches!(progress.phase(), RequestPhase::Queued { .. }) {
                    std::thread::yield_now();
                }
            }
        }
        assert_eq!(client.free(), 0);
        client.slots.expedite(&urgencies[2]);
        for expected in [3, 2, 1] {
            assert!(begins.is_empty());
            opens.send(()).unwrap();
            assert_eq!(begins.recv(), Ok(expected));
        }
        opens.send(()).unwrap();
        while client.free() == 0 {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_slot_is_given_back_when_its_patience_is_used_up_by_many_short_waits() {
        let client = Client::new(SLOTS);
        let slot = client.enter(&Urgency::new(false));
        for _ in 0..9 {
            slot.has_waited(PATIENCE / 10);
            assert!(slot.patience().is_some());
        }
        slot.has_waited(PATIENCE / 10);
        assert_eq!(slot.patience(), None);
        assert_eq!(client.free(), SLOTS);
        slot.resume(&StopToken::never(), Deadline::NEVER).unwrap();
        assert_eq!(slot.patience(), Some(PATIENCE));
        assert_eq!(client.free(), SLOTS - 1);
        drop(slot);
        assert_eq!(client.free(), SLOTS);
    }

    #[test]
    fn a_stop_or_the_callers_deadline_ends_the_wait_for_a_slot() {
        let client = Client::new(1);
        let source = StopSource::new();
        let held = client.enter(&Urgency::new(true));
        let wait = |deadline| {
            let urgency = Urgency::new(true);
            let slot = client
                .slots
                .enter(&urgency, &progress(), &source.token(), deadline);
            slot.unwrap_err()
        };
        let late = wait(Deadline::at(Clock::system().now()));
        assert!(matches!(late, Halt::Limit(Limit::Deadline)), "{late:?}");
        source.stop();
        let stopped = wait(Deadline::NEVER);
        assert!(matches!(stopped, Halt::Stopped), "{stopped:?}");
        drop(held);
        drop(client.enter(&Urgency::new(true)));
        assert_eq!(client.free(), 1);
    }

    /// A job that nobody starts is told so, and keeps no slot.
    #[test]
    fn without_a_thread_the_request_says_so_and_the_others_go_on() {
        let client = Client::new(1);
        let slot = client.enter(&Urgency::new(false));
        let (job, answer) = answering("the decoder", move || {
            drop(slot);
            Ok(())
        });
        drop(client.asking.submit(job));
        let error = answer.take_one(&call()).unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Resources);
        assert_eq!(client.free(), 1);
        let one = client.run(&Urgency::new(true), |_slot| Ok(1));
        assert_eq!(one.answer(&call()).unwrap(), 1);
    }

    #[test]
    fn a_panic_is_the_error_of_its_own_request_and_keeps_no_slot() {
        let client = Client::new(1);
        let broken: Taker<Result<(), Error>> =
            client.run(&Urgency::new(true), |_slot| panic!("told"));
        let error = broken.take_one(&call()).unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Panicked);
        assert_eq!(error.to_string(), "the decoder panicked: told");
        let kept = client.run(&Urgency::new(true), |_slot| Ok(1));
        assert_eq!(kept.answer(&call()).unwrap(), 1);
    }

    #[test]
    fn no_thread_outlives_the_owner() {
        let client = Client::new(SLOTS);
        let (ended, end) = bounded(1);
        let (begun, started) = bounded(1);
        let (open, gate) = bounded::<()>(1);
        let job = move |_slot: Arc<Slot>| {
            begun.send(()).unwrap();
            gate.recv().unwrap();
            ended.send(()).unwrap();
            Ok(())
        };
        drop(client.run(&Urgency::new(false), job));
        started.recv().unwrap();
        open.send(()).unwrap();
        drop(client);
        end.try_recv()
            .expect("joined, so its last act has happened");
    }
}
