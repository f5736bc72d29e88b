//! Slots for work: a request holds one while it computes or writes, and none while its peer is
//! silent.
//!
//! Lists and the opening of watches run on short-lived threads, which a slot starts: a stack stays
//! resident as deep as it was ever used, and a watching thread's is to stay shallow. So there are
//! as many threads as slots, and one more for each request whose peer is silent; a lister-watcher
//! has one request under way at a time.

use std::fmt;
use std::time::Duration;

use super::halt::{Halt, Limit};
use super::handover::{Taker, handover};
use super::limiter::Urgency;
use super::slot_queue::{Class, SlotQueue};
use super::threads::Threads;
use crate::clock::{Clock, Deadline};
use crate::error::{Error, ErrorKind};
use crate::guard::guard_call;
use crate::list_watch::{RequestPhase, RequestProgress};
use crate::sync::{
    Arc, Bell, Mutex,
    atomic::{AtomicBool, Ordering},
};
use crate::worker::{StopToken, Wake, Worker};

/// A request waits so long with its slot in hand, all its waits since it got the slot together: a
/// healthy server is asked by as many requests as there are slots, and a dead one costs each slot
/// no more than this.
const PATIENCE: Duration = Duration::from_millis(100);

/// The slots of one client, and the threads of the requests that wait or work.
pub(crate) struct Slots {
    shared: Arc<Shared>,
}

/// A request's slot. The clones of the request's context share it; only the thread of the request
/// uses it.
pub(crate) struct Slot {
    shared: Arc<Shared>,
    urgency: Urgency,
    tenure: Mutex<Tenure>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tenure {
    /// In use; waits may still take so long together.
    Held(Duration),
    /// Given back while the peer is silent.
    GivenBack,
    /// The request has ended.
    Ended,
}

/// A request that is to run on a thread of its own.
pub(crate) struct SlotRequest<'a> {
    /// Whether somebody waits for it; that may begin while it is queued.
    pub(crate) urgency: &'a Urgency,
    /// The program's code that runs in it, for an error if that panics.
    pub(crate) port: String,
    pub(crate) progress: &'a RequestProgress,
}

struct Shared {
    name: &'static str,
    state: Mutex<State>,
}

struct State {
    queue: SlotQueue<Waiting>,
    started: usize,
    threads: Vec<Worker>,
    closed: bool,
}

enum Waiting {
    /// A request that has no thread yet.
    Job(Job),
    /// A thread that waits in [`Shared::park`].
    Thread(Arc<Parked>),
}

impl Waiting {
    fn is_job_of(&self, urgency: &Urgency) -> bool {
        match self {
            Self::Job(job) => job.urgency.is(urgency),
            Self::Thread(_) => false,
        }
    }

    fn is_thread(&self, parked: &Arc<Parked>) -> bool {
        match self {
            Self::Thread(other) => Arc::ptr_eq(other, parked),
            Self::Job(_) => false,
        }
    }
}

struct Job {
    urgency: Urgency,
    run: Box<dyn FnOnce(Result<Arc<Slot>, Error>) + Send>,
}

impl Job {
    fn class(&self) -> Class {
        Class::new(self.urgency.is_urgent())
    }
}

/// A thread that waits for a slot.
#[derive(Debug, Default)]
struct Parked {
    bell: Bell,
    granted: AtomicBool,
}

/// Ends the wait of a parked thread when the stop is raised.
struct Unpark {
    shared: Arc<Shared>,
    parked: Arc<Parked>,
}

impl Wake for Unpark {
    fn wake(&self) {
        // Under the lock, so that the ring does not fall between the thread's look at the stop and
        // its wait.
        let state = self.shared.state.lock();
        self.parked.bell.ring();
        drop(state);
    }
}

/// A job that has a slot and no thread yet.
struct Granted {
    shared: Arc<Shared>,
    job: Option<Job>,
}

impl Granted {
    fn start(mut self) {
        if let Some(job) = self.job.take() {
            self.shared.start(job);
        }
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        if let Some(job) = self.job.take() {
            let next = self
                .shared
                .refuse(job, no_thread("no thread could start it"));
            if let Some(next) = next {
                self.shared.start(next);
            }
        }
    }
}

impl Slots {
    /// So many slots; the threads are called `name-1` and so on.
    pub(crate) fn new(name: &'static str, slots: usize) -> Self {
        let state = State {
            queue: SlotQueue::new(slots),
            started: 0,
            threads: Vec::new(),
            closed: false,
        };
        Self {
            shared: Arc::new(Shared {
                name,
                state: Mutex::new(state),
            }),
        }
    }

    /// Runs `job` on a thread of its own once it has a slot, and gives its result to the receiver.
    /// `port` names it where it panics. One of `starters` starts the thread: starting one leaves
    /// traces in the caller's stack and allocator cache.
    ///
    /// # Errors
    ///
    /// `Stopped`, when the client is gone, or `Resources`, when no thread can start it.
    pub(crate) fn run_by<T: Send + 'static>(
        &self,
        starters: &Threads,
        request: SlotRequest<'_>,
        job: impl FnOnce(Arc<Slot>) -> Result<T, Error> + Send + 'static,
    ) -> Result<Taker<Result<T, Error>>, Error> {
        let SlotRequest {
            urgency,
            port,
            progress,
        } = request;
        let (reply, answer) = handover(1);
        let run = move |slot: Result<Arc<Slot>, Error>| {
            let result = slot.and_then(|slot| guard_call(port, || job(slot)));
            // Whoever asked may have gone: then the result goes too.
            reply.give(result, None);
        };
        let job = Job {
            urgency: urgency.clone(),
            run: Box::new(run),
        };
        let granted = {
            let mut state = self.shared.state.lock();
            if state.closed {
                return Err(Error::stopped("the client is gone"));
            }
            let behind = state.queue.push(job.class(), Waiting::Job(job));
            // Under the lock: what the job's thread tells comes after this.
            progress.enter(RequestPhase::Queued { behind });
            state.grant()
        };
        if let Some(job) = granted {
            let granted = Granted {
                shared: Arc::clone(&self.shared),
                job: Some(job),
            };
            // If no thread can start it, the job is told so by the drop.
            drop(starters.run(move || granted.start())?);
        }
        Ok(answer)
    }

    /// Tells that somebody waits for a request now: it goes before the background's if it is
    /// queued. Never blocks.
    pub(crate) fn expedite(&self, urgency: &Urgency) {
        urgency.set();
        let mut state = self.shared.state.lock();
        let queued = state.queue.remove(|waiting| waiting.is_job_of(urgency));
        if let Some(job) = queued {
            state.queue.push(Class::UrgentNew, job);
        }
    }

    /// A slot for a request that runs on the calling thread. Blocks until one is free, the stop, or
    /// the deadline.
    ///
    /// # Errors
    ///
    /// The stop, or the caller's deadline.
    pub(crate) fn enter(
        &self,
        urgent: bool,
        progress: &RequestProgress,
        stop: &StopToken,
        deadline: Deadline,
    ) -> Result<Arc<Slot>, Halt> {
        let shared = &self.shared;
        shared.park(Class::new(urgent), Some(progress), stop, deadline)?;
        Ok(Slot::held(shared, &Urgency::new(urgent)))
    }
}

#[cfg(test)]
impl Slots {
    /// Slots that are in use.
    pub(crate) fn in_use(&self) -> usize {
        self.shared.state.lock().queue.in_use()
    }
}

impl State {
    /// Gives free slots away: threads that wait for one are woken; a job that got one is to be
    /// started by the caller.
    fn grant(&mut self) -> Option<Job> {
        loop {
            match self.queue.grant()? {
                Waiting::Job(job) => return Some(job),
                Waiting::Thread(parked) => {
                    parked.granted.store(true, Ordering::SeqCst);
                    parked.bell.ring();
                }
            }
        }
    }
}

impl Shared {
    /// Blocks until the calling thread has a slot, the stop, or the deadline.
    fn park(
        self: &Arc<Self>,
        class: Class,
        progress: Option<&RequestProgress>,
        stop: &StopToken,
        deadline: Deadline,
    ) -> Result<(), Halt> {
        let mut state = self.state.lock();
        if state.queue.take() {
            return Ok(());
        }
        let parked = Arc::new(Parked::default());
        let waiting = Waiting::Thread(Arc::clone(&parked));
        let behind = state.queue.push(class, waiting);
        drop(state);
        if let Some(progress) = progress {
            progress.enter(RequestPhase::Queued { behind });
        }
        let wake: Arc<dyn Wake> = Arc::new(Unpark {
            shared: Arc::clone(self),
            parked: Arc::clone(&parked),
        });
        let _registered = stop.register(&wake);
        let clock = Clock::system();
        let mut state = self.state.lock();
        loop {
            if parked.granted.load(Ordering::SeqCst) {
                return Ok(());
            }
            let end = if stop.is_stopped() {
                Some(Halt::Stopped)
            } else if clock.has_passed(deadline) {
                Some(Halt::Limit(Limit::Deadline))
            } else {
                None
            };
            if let Some(end) = end {
                let removed = state.queue.remove(|waiting| waiting.is_thread(&parked));
                drop(state);
                drop(removed);
                return Err(end);
            }
            state = match deadline.instant() {
                Some(end) => parked.bell.wait_until(state, end),
                None => parked.bell.wait(state),
            };
        }
    }

    /// Takes a slot back; what waits for one gets it.
    fn release(self: &Arc<Self>) {
        if let Some(job) = self.release_for_next() {
            self.start(job);
        }
    }

    /// Takes a slot back; a job that gets it is the caller's to run.
    fn release_for_next(&self) -> Option<Job> {
        let mut state = self.state.lock();
        state.queue.release();
        state.grant()
    }

    /// Starts a thread for a job that has a slot. If there is no thread, a request that works takes
    /// the job over later; without such a request the job's is told so.
    fn start(self: &Arc<Self>, job: Job) {
        let mut next = Some(job);
        while let Some(job) = next.take() {
            let number = {
                let mut state = self.state.lock();
                state.started = state.started.wrapping_add(1);
                state.started
            };
            let place = Arc::new(Mutex::new(Some(job)));
            let (shared, taken) = (Arc::clone(self), Arc::clone(&place));
            let spawned = Worker::spawn(format!("{}-{number}", self.name), move |_| {
                let job = taken.lock().take();
                if let Some(job) = job {
                    shared.work(job);
                }
            });
            match spawned {
                // The owner went meanwhile and joined the others: this one is joined here.
                Ok(worker) => drop(self.own(worker)),
                Err(error) => {
                    let job = place.lock().take();
                    next = job.and_then(|job| self.refuse(job, no_thread(&error.to_string())));
                }
            }
        }
    }

    /// Takes the slot back of a job that has no thread. Gives the next job that may be tried.
    fn refuse(&self, job: Job, error: Error) -> Option<Job> {
        let (told, next) = {
            let mut state = self.state.lock();
            state.queue.release();
            if state.queue.in_use() > 0 && !state.closed {
                let class = job.class();
                state.queue.push_front(class, Waiting::Job(job));
                (None, None)
            } else {
                (Some(job), state.grant())
            }
        };
        if let Some(job) = told {
            (job.run)(Err(error));
        }
        next
    }

    /// Keeps a thread to be joined with the others; gives it back if the owner is gone.
    fn own(&self, worker: Worker) -> Option<Worker> {
        let mut state = self.state.lock();
        if state.closed {
            return Some(worker);
        }
        state.threads.push(worker);
        None
    }

    /// Runs one job after the other, as long as each ends with its slot in hand.
    fn work(self: &Arc<Self>, job: Job) {
        let mut next = Some(job);
        while let Some(job) = next.take() {
            let slot = Slot::held(self, &job.urgency);
            (job.run)(Ok(Arc::clone(&slot)));
            if slot.end() {
                next = self.release_for_next();
            }
        }
        // The system keeps an ended thread until it is joined; the last to leave takes the others
        // along.
        let ended: Vec<Worker> = {
            let mut state = self.state.lock();
            let all = std::mem::take(&mut state.threads);
            let (ended, rest) = all.into_iter().partition(Worker::is_finished);
            state.threads = rest;
            ended
        };
        drop(ended);
    }
}

fn no_thread(why: &str) -> Error {
    let message = format!("the system has no thread for the request: {why}");
    Error::new(ErrorKind::Resources, message)
}

impl Drop for Slots {
    fn drop(&mut self) {
        let (threads, waiting) = {
            let mut state = self.shared.state.lock();
            state.closed = true;
            // A thread that waits for a slot gets one from those who work.
            let (jobs, others) = state
                .queue
                .drain()
                .into_iter()
                .partition::<Vec<_>, _>(|waiting| matches!(waiting, Waiting::Job(_)));
            for thread in others {
                state.queue.push(Class::Resumed, thread);
            }
            (std::mem::take(&mut state.threads), jobs)
        };
        for waiting in waiting {
            if let Waiting::Job(job) = waiting {
                (job.run)(Err(Error::stopped("the client is gone")));
            }
        }
        drop(threads);
    }
}

impl Slot {
    fn held(shared: &Arc<Shared>, urgency: &Urgency) -> Arc<Self> {
        Arc::new(Self {
            shared: Arc::clone(shared),
            urgency: urgency.clone(),
            tenure: Mutex::new(Tenure::Held(PATIENCE)),
        })
    }

    /// How long a wait may take before the slot is to be given back; `None` where that has
    /// happened.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let tenure = *self.tenure.lock();
        match tenure {
            Tenure::Held(left) => Some(left),
            Tenure::GivenBack | Tenure::Ended => None,
        }
    }

    /// Told how long a wait took; gives the slot back when its patience is used up.
    pub(crate) fn has_waited(&self, time: Duration) {
        let used_up = {
            let mut tenure = self.tenure.lock();
            let Tenure::Held(left) = &mut *tenure else {
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
        let held = self.leave(Tenure::GivenBack);
        if held {
            self.shared.release();
        }
    }

    /// Takes a slot again, behind a wait. Blocks until one is free, the stop, or the deadline.
    ///
    /// # Errors
    ///
    /// The stop, or the caller's deadline.
    pub(crate) fn resume(&self, stop: &StopToken, deadline: Deadline) -> Result<(), Halt> {
        let given_back = *self.tenure.lock() == Tenure::GivenBack;
        if given_back {
            self.shared.park(
                Class::resumed(self.urgency.is_urgent()),
                None,
                stop,
                deadline,
            )?;
            *self.tenure.lock() = Tenure::Held(PATIENCE);
        }
        Ok(())
    }

    /// Ends the request's use of slots; whether it held one, which is the caller's to give on.
    fn end(&self) -> bool {
        self.leave(Tenure::Ended)
    }

    fn leave(&self, to: Tenure) -> bool {
        let mut tenure = self.tenure.lock();
        if *tenure == Tenure::Ended {
            return false;
        }
        let before = std::mem::replace(&mut *tenure, to);
        matches!(before, Tenure::Held(_))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.end() {
            self.shared.release();
        }
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
    use super::super::wakeup::WakeUp;
    use super::*;
    use crate::worker::StopSource;

    const SLOTS: usize = 4;

    fn call() -> Blocking {
        Blocking::new(&StopToken::never(), &WakeUp::new().unwrap(), Until::NEVER)
    }

    fn progress() -> RequestProgress {
        RequestProgress::new("t".into())
    }

    fn request(urgent: bool, progress: &RequestProgress) -> SlotRequest<'_> {
        static URGENT: std::sync::OnceLock<[Urgency; 2]> = std::sync::OnceLock::new();
        let of_tests = URGENT.get_or_init(|| [Urgency::new(false), Urgency::new(true)]);
        SlotRequest {
            urgency: &of_tests[usize::from(urgent)],
            port: "the decoder".to_owned(),
            progress,
        }
    }

    fn pool() -> (Slots, Threads) {
        (Slots::new("t", SLOTS), Threads::new("t-start", 1))
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
        let (slots, starters) = pool();
        let (gate, begins, opens) = gate();
        let mut answers = Vec::new();
        for number in 0..3 * SLOTS {
            let gate = Arc::clone(&gate);
            let job = move |slot: Arc<Slot>| {
                slot.give_back();
                gate.pass(number);
                slot.resume(&StopToken::never(), Deadline::NEVER)
                    .map_err(|_halt| no_thread("stopped"))
            };
            answers.push(
                slots
                    .run_by(&starters, request(false, &progress()), job)
                    .unwrap(),
            );
        }
        // All of them are under way at the same time, three times as many as there are slots.
        let begun: std::collections::BTreeSet<_> = begins.iter().take(3 * SLOTS).collect();
        assert_eq!(begun.len(), 3 * SLOTS);
        for _ in 0..3 * SLOTS {
            opens.send(()).unwrap();
        }
        for answer in answers {
            answer.take_one(&call()).unwrap().unwrap();
        }
    }

    #[test]
    fn a1_jobs_that_work_are_bounded_and_urgent_ones_overtake() {
        let (slots, starters) = pool();
        let (gate, begins, opens) = gate();
        let mut answers = Vec::new();
        let mut start = |number, urgent| {
            let gate = Arc::clone(&gate);
            let job = move |_slot: Arc<Slot>| {
                gate.pass(number);
                Ok(())
            };
            answers.push(
                slots
                    .run_by(&starters, request(urgent, &progress()), job)
                    .unwrap(),
            );
        };
        (0..SLOTS).for_each(|number| start(number, false));
        for _ in 0..SLOTS {
            begins.recv().unwrap();
        }
        start(10, false);
        start(11, true);
        assert!(begins.is_empty());
        assert_eq!(slots.in_use(), SLOTS);
        for expected in [11, 10] {
            opens.send(()).unwrap();
            assert_eq!(begins.recv().unwrap(), expected);
        }
        for _ in 0..SLOTS {
            opens.send(()).unwrap();
        }
        for answer in answers {
            answer.take_one(&call()).unwrap().unwrap();
        }
    }

    /// A reader may come for an object whose list is queued already.
    #[test]
    fn a1_a_request_becomes_urgent_while_it_is_queued() {
        let slots = Slots::new("t", 1);
        let starters = Threads::new("t-start", 1);
        let (gate, begins, opens) = gate();
        let urgencies = [0, 1, 2].map(|_| Urgency::new(false));
        let answers: Vec<_> = urgencies
            .iter()
            .enumerate()
            .map(|(number, urgency)| {
                let gate = Arc::clone(&gate);
                let progress = progress();
                let request = SlotRequest {
                    urgency,
                    ..request(false, &progress)
                };
                let job = move |_slot: Arc<Slot>| {
                    gate.pass(number);
                    Ok(())
                };
                slots.run_by(&starters, request, job).unwrap()
            })
            .collect();
        assert_eq!(begins.recv(), Ok(0));
        slots.expedite(&urgencies[2]);
        for expected in [2, 1] {
            opens.send(()).unwrap();
            assert_eq!(begins.recv(), Ok(expected));
        }
        opens.send(()).unwrap();
        for answer in answers {
            answer.take_one(&call()).unwrap().unwrap();
        }
    }

    #[test]
    fn a_slot_is_given_back_when_its_patience_is_used_up_by_many_short_waits() {
        let (slots, _) = pool();
        let stop = StopToken::never();
        let slot = slots
            .enter(false, &progress(), &stop, Deadline::NEVER)
            .unwrap();
        for _ in 0..9 {
            slot.has_waited(PATIENCE / 10);
            assert!(slot.patience().is_some());
        }
        slot.has_waited(PATIENCE / 10);
        assert_eq!(slot.patience(), None);
        assert_eq!(slots.in_use(), 0);
        slot.resume(&stop, Deadline::NEVER).unwrap();
        assert_eq!(slot.patience(), Some(PATIENCE));
        assert_eq!(slots.in_use(), 1);
        drop(slot);
        assert_eq!(slots.in_use(), 0);
    }

    #[test]
    fn a_stop_or_the_callers_deadline_ends_the_wait_for_a_slot() {
        let slots = Slots::new("t", 1);
        let source = StopSource::new();
        let stop = source.token();
        let held = slots
            .enter(true, &progress(), &stop, Deadline::NEVER)
            .unwrap();
        let passed = Deadline::at(Clock::system().now());
        let late = slots.enter(true, &progress(), &stop, passed).unwrap_err();
        assert!(matches!(late, Halt::Limit(Limit::Deadline)), "{late:?}");
        source.stop();
        let stopped = slots
            .enter(true, &progress(), &stop, Deadline::NEVER)
            .unwrap_err();
        assert!(matches!(stopped, Halt::Stopped), "{stopped:?}");
        drop(held);
        drop(
            slots
                .enter(true, &progress(), &StopToken::never(), Deadline::NEVER)
                .unwrap(),
        );
        assert_eq!(slots.in_use(), 0);
    }

    /// A job that nobody starts is told so, and keeps no slot.
    #[test]
    fn without_a_thread_the_request_says_so_and_the_others_go_on() {
        let (slots, starters) = pool();
        let (tell, told) = bounded(1);
        let job = Job {
            urgency: Urgency::new(false),
            run: Box::new(move |slot| tell.send(slot.unwrap_err()).unwrap()),
        };
        assert!(slots.shared.state.lock().queue.take());
        drop(Granted {
            shared: Arc::clone(&slots.shared),
            job: Some(job),
        });
        let error = told.recv().unwrap();
        assert_eq!(error.kind(), ErrorKind::Resources);
        assert_eq!(slots.in_use(), 0);
        let one = slots.run_by(&starters, request(true, &progress()), |_slot| Ok(1));
        assert_eq!(one.unwrap().take_one(&call()).unwrap().unwrap(), 1);
    }

    #[test]
    fn a_panic_is_the_error_of_its_own_request() {
        let (slots, starters) = pool();
        let broken = slots.run_by(&starters, request(true, &progress()), |_slot| {
            panic!("told")
        });
        let broken: Result<(), Error> = broken.unwrap().take_one(&call()).unwrap();
        let error = broken.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Panicked);
        assert_eq!(error.to_string(), "the decoder panicked: told");
        let kept = slots.run_by(&starters, request(true, &progress()), |_slot| Ok(1));
        assert_eq!(kept.unwrap().take_one(&call()).unwrap().unwrap(), 1);
        drop(slots);
    }

    #[test]
    fn no_thread_outlives_the_owner() {
        let (slots, starters) = pool();
        let (ended, end) = bounded(1);
        let (begun, started) = bounded(1);
        let (open, gate) = bounded::<()>(1);
        let job = move |_slot: Arc<Slot>| {
            begun.send(()).unwrap();
            gate.recv().unwrap();
            ended.send(()).unwrap();
            Ok(())
        };
        drop(
            slots
                .run_by(&starters, request(false, &progress()), job)
                .unwrap(),
        );
        started.recv().unwrap();
        open.send(()).unwrap();
        drop(slots);
        // What had not handed its thread over yet joins it.
        drop(starters);
        end.try_recv()
            .expect("joined, so its last act has happened");
    }
}
