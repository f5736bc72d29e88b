//! The threads of a client's requests, and their slots.
//!
//! Lists, the opening of watches and the decoding of events run on threads of the client. A stack
//! stays resident as deep as it was ever used, so the stack of a watching thread must stay shallow.
//! There are as many threads as slots, and one more for each request whose server is silent.

use std::ops::Deref;

use super::admission::Urgency;
use super::channel::{ItemReceiver, ItemSender, channel};
use super::slots::{Slot, SlotRequest, Slots};
use crate::clock::Deadline;
use crate::error::Error;
use crate::guard::guard_call;
use crate::jobs::{Job, JobKind, ThreadPool};
use crate::list_watch::RequestProgress;
use crate::sync::Arc;
use crate::worker::StopToken;

/// The threads and the slots of one client.
pub(crate) struct RequestThreads {
    pub(crate) slots: Slots,
    /// Runs lists and opens watches. The slots bound its threads.
    requests: ThreadPool,
    /// Reads watches that have available bytes. Its jobs never wait for the network.
    pub(crate) readers: ThreadPool,
}

/// A request on its way to a thread, or on it. A drop takes it out of the queue for a slot.
pub(crate) struct RunningRequest<T> {
    answer: ItemReceiver<Result<T, Error>>,
    _slot: SlotRequest,
}

impl RequestThreads {
    pub(crate) fn new(slots: usize, readers_max: usize) -> Self {
        Self {
            slots: Slots::new(slots),
            requests: ThreadPool::new("ask", usize::MAX, JobKind::Wait),
            readers: ThreadPool::new("read", readers_max, JobKind::Compute),
        }
    }

    /// Runs `job` on a thread of its own as soon as there is a slot for it. `port` names the
    /// program's code in error texts. The job may send results before its last one. Never blocks.
    ///
    /// The thread that releases a slot hands it to the next job, and takes that job itself if its
    /// own has ended. If the system has no thread, the job releases its slot and waits for another
    /// request's thread.
    pub(crate) fn run<T, J>(
        &self,
        (urgency, progress): (&Urgency, &RequestProgress),
        stop: &StopToken,
        port: String,
        job: J,
    ) -> RunningRequest<T>
    where
        T: Send + 'static,
        J: FnOnce(Arc<Slot>, &ItemSender<Result<T, Error>>) -> Result<T, Error> + Send + 'static,
    {
        let (reply, answer) = channel();
        let (requests, readers) = (self.requests.queue().clone(), self.readers.queue().clone());
        let stop = stop.clone();
        let on_slot = move |slot: Arc<Slot>| {
            let own = Arc::clone(&slot);
            let job: Job = Box::new(move |begun| {
                let result = begun.and_then(|()| {
                    guard_call(&port, || {
                        let resumed = own.resume(&stop, Deadline::NEVER);
                        resumed.map_err(|_stopped| Error::stopped(&port))?;
                        job(Arc::clone(&own), &reply)
                    })
                });
                reply.send_last(result, &own);
                Some(own)
            });
            if let Some(thread) = requests.submit(job) {
                let start: Job = Box::new(move |_| {
                    if !thread.start() {
                        slot.release();
                    }
                    None
                });
                // Starting a thread deepens the caller's stack and fills its allocator cache.
                if let Some(starter) = readers.submit(start) {
                    starter.start();
                }
            }
        };
        RunningRequest {
            answer,
            _slot: self.slots.enter_later(urgency, progress, on_slot),
        }
    }
}

impl<T> Deref for RunningRequest<T> {
    type Target = ItemReceiver<Result<T, Error>>;

    fn deref(&self) -> &Self::Target {
        &self.answer
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

    use super::super::call_context::{CallContext, NamedDeadline};
    use super::super::channel::answering;
    use super::*;
    use crate::error::ErrorKind;
    use crate::list_watch::RequestPhase;
    use crate::tests::until::until;
    use crate::worker::Worker;

    const SLOTS: usize = 4;

    fn call() -> CallContext {
        CallContext::new(&StopToken::never(), NamedDeadline::NEVER).unwrap()
    }

    fn progress() -> RequestProgress {
        RequestProgress::new("t".into())
    }

    fn run<T: Send + 'static>(
        threads: &RequestThreads,
        urgency: &Urgency,
        job: impl FnOnce(Arc<Slot>) -> Result<T, Error> + Send + 'static,
    ) -> RunningRequest<T> {
        let job = move |slot: Arc<Slot>, _caller: &_| job(slot);
        let (waiting, stop) = ((urgency, &progress()), StopToken::never());
        threads.run(waiting, &stop, "the decoder".to_owned(), job)
    }

    /// A job that reports its start, and waits until the test lets it go on.
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

    /// A1: as many jobs work as there are slots; jobs that wait without a slot do not count.
    #[test]
    fn a1_a_job_that_gives_its_slot_back_lets_the_next_one_work() {
        let client = RequestThreads::new(SLOTS, 1);
        let (gate, begins, opens) = gate();
        let mut answers = Vec::new();
        for number in 0..3 * SLOTS {
            let gate = Arc::clone(&gate);
            let job = move |slot: Arc<Slot>| {
                slot.release();
                gate.pass(number);
                slot.resume(&StopToken::never(), Deadline::NEVER)
                    .map_err(|_halt| Error::stopped("t"))
            };
            answers.push(run(&client, &Urgency::new(false), job));
        }
        // All of them are under way at the same time, three times as many as there are slots.
        let begun: std::collections::BTreeSet<_> = begins.iter().take(3 * SLOTS).collect();
        assert_eq!(begun.len(), 3 * SLOTS);
        for _ in 0..3 * SLOTS {
            opens.send(()).unwrap();
        }
        for answer in answers {
            answer.result(&call()).unwrap();
        }
    }

    /// A1: a reader may come for an object whose list is queued already.
    #[test]
    fn a1_jobs_that_work_are_bounded_and_urgent_ones_overtake() {
        let client = Arc::new(RequestThreads::new(1, 1));
        let (gate, begins, opens) = gate();
        let urgencies = [false, false, false, true].map(Urgency::new);
        let mut workers = Vec::new();
        for (number, urgency) in urgencies.iter().cloned().enumerate() {
            let (requests, gate) = (Arc::clone(&client), Arc::clone(&gate));
            let progress = progress();
            let told = progress.clone();
            let worker = Worker::spawn(format!("t-{number}"), move |stop| {
                let job = move |_slot: Arc<Slot>, _caller: &_| {
                    gate.pass(number);
                    Ok(())
                };
                let answer = requests.run((&urgency, &told), stop, "t".to_owned(), job);
                answer.result(&call()).unwrap();
            });
            workers.push(worker.unwrap());
            if number == 0 {
                assert_eq!(begins.recv(), Ok(0));
            } else {
                until(|| matches!(progress.phase(), RequestPhase::Queued { .. }));
            }
        }
        assert_eq!(client.slots.free(), 0);
        client.slots.expedite(&urgencies[2]);
        for expected in [3, 2, 1] {
            assert!(begins.is_empty());
            opens.send(()).unwrap();
            assert_eq!(begins.recv(), Ok(expected));
        }
        opens.send(()).unwrap();
        until(|| client.slots.free() != 0);
    }

    /// A job whose thread never starts gets the error, and keeps no slot.
    #[test]
    fn without_a_thread_the_request_says_so_and_the_others_go_on() {
        let client = RequestThreads::new(1, 1);
        let urgency = Urgency::new(false);
        let slot = client
            .slots
            .enter(&urgency, &progress(), &StopToken::never(), Deadline::NEVER);
        let (job, answer) = answering("the decoder", move |_| {
            drop(slot);
            Ok(())
        });
        drop(client.requests.queue().submit(job));
        let error = answer.receive_one(&call()).unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Resources);
        assert_eq!(client.slots.free(), 1);
        let one = run(&client, &Urgency::new(true), |_slot| Ok(1));
        assert_eq!(one.result(&call()).unwrap(), 1);
    }

    #[test]
    fn a_panic_is_the_error_of_its_own_request_and_keeps_no_slot() {
        let client = RequestThreads::new(1, 1);
        let broken: RunningRequest<()> = run(&client, &Urgency::new(true), |_slot| panic!("told"));
        let error = broken.receive_one(&call()).unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Panicked);
        assert_eq!(error.to_string(), "the decoder panicked: told");
        let kept = run(&client, &Urgency::new(true), |_slot| Ok(1));
        assert_eq!(kept.result(&call()).unwrap(), 1);
    }

    #[test]
    fn no_thread_outlives_the_owner() {
        let client = RequestThreads::new(SLOTS, 1);
        let (ended, end) = bounded(1);
        let (begun, started) = bounded(1);
        let (open, gate) = bounded::<()>(1);
        let job = move |_slot: Arc<Slot>| {
            begun.send(()).unwrap();
            gate.recv().unwrap();
            ended.send(()).unwrap();
            Ok(())
        };
        drop(run(&client, &Urgency::new(false), job));
        started.recv().unwrap();
        open.send(()).unwrap();
        drop(client);
        end.try_recv()
            .expect("joined, so its last act has happened");
    }
}
