//! A pool of threads, for short jobs that never block, jobs that wait for a server, or jobs that
//! nothing can interrupt.

#[cfg(all(test, shuttle))]
mod schedules;

use std::collections::VecDeque;
use std::time::Duration;

use log::Level;

use crate::clock::{Clock, Deadline};
use crate::error::{Error, ErrorKind};
use crate::guard::guard;
use crate::sync::{Arc, Bell, Mutex, Rank};
use crate::worker::Worker;

/// How long a thread without a job waits for the next one before it ends.
const LINGER: Duration = Duration::from_millis(100);

/// The most threads of a pool that wait for jobs. A thread beyond them ends with its job. A client
/// has as many slots for requests, so that a thousand openings in a row use the same threads.
const IDLE_MAX: usize = 16;

/// A job. It receives the error when the system has no thread for it.
pub(crate) type Job = Box<dyn FnOnce(Result<(), Error>) -> Option<Leftover> + Send>;

/// The value that a job leaves. It is dropped once its thread is free. If the drop queues the next
/// job, this thread takes it.
pub(crate) type Leftover = Arc<dyn Send + Sync>;

/// Runs jobs on a bounded number of threads, in the order they came. A job goes to the thread that
/// became idle last, so that the others end.
pub(crate) struct ThreadPool(JobQueue);

/// The queue of a pool's jobs. After the pool's end it refuses them.
#[derive(Clone)]
pub(crate) struct JobQueue(Arc<PoolInner>);

/// How the jobs of a pool block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobKind {
    /// Jobs never block. One thread stays after the first job. Others start while jobs are queued.
    Compute,
    /// Jobs wait for a server. Each job has a thread of its own, up to the bound. No thread stays
    /// for longer than [`LINGER`].
    Wait,
    /// As `Wait`, but nothing ends the waits. So dropping the pool does not join its threads.
    Hang,
    /// As `Wait`, but a call of the system may hang. So dropping the pool joins its threads for
    /// this long.
    EndsWithin(Duration),
}

struct PoolInner {
    name: &'static str,
    threads_max: usize,
    jobs: JobKind,
    state: Arc<Mutex<PoolState>>,
}

#[derive(Default)]
struct PoolState {
    queued: VecDeque<Job>,
    /// The number of threads, including those that are being started.
    running: usize,
    /// The number of threads that run a job.
    busy: usize,
    /// The threads that wait for a job. The last one became idle last.
    idle: Vec<Arc<Bell>>,
    started: usize,
    closed: bool,
    threads: Vec<Worker>,
}

/// A thread that is counted and not started yet. Dropping it uncounts it.
pub(crate) struct NewThread(Option<Arc<PoolInner>>);

impl NewThread {
    /// Starts the thread; `false` when the system has none. Then running threads take the jobs.
    /// Without a running thread, the jobs receive the error.
    pub(crate) fn start(mut self) -> bool {
        let Some(pool) = self.0.take() else {
            return false;
        };
        let number = pool.state.lock().started;
        let working = Arc::clone(&pool);
        let spawned = Worker::spawn(format!("{}-{number}", pool.name), move |_| working.work());
        match spawned {
            Ok(worker) => {
                let mut state = pool.state.lock();
                if !state.closed {
                    state.threads.push(worker);
                }
                // Otherwise the owner has joined the other threads meanwhile. This one is joined
                // here.
                true
            }
            Err(error) => {
                pool.count_out(&error.to_string());
                false
            }
        }
    }
}

impl Drop for NewThread {
    fn drop(&mut self) {
        if let Some(pool) = self.0.take() {
            pool.count_out("the thread that was to start it is gone");
        }
    }
}

impl ThreadPool {
    /// Threads called `name-1` and so on, at most `threads_max` at a time.
    pub(crate) fn new(name: &'static str, threads_max: usize, jobs: JobKind) -> Self {
        Self(JobQueue(Arc::new(PoolInner {
            name,
            threads_max,
            jobs,
            state: Arc::new(Mutex::ranked(Rank::JOBS, PoolState::default())),
        })))
    }

    pub(crate) fn queue(&self) -> &JobQueue {
        &self.0
    }

    /// Queues `job`, and starts a thread for it if it needs one.
    pub(crate) fn run(&self, job: Job) {
        if let Some(thread) = self.0.submit(job) {
            thread.start();
        }
    }
}

impl JobQueue {
    /// Queues `job`. If it needs a new thread, the caller has to start that.
    pub(crate) fn submit(&self, job: Job) -> Option<NewThread> {
        let (thread, idle) = {
            let mut state = self.0.state.lock();
            if state.closed {
                drop(state);
                drop(job(Err(client_is_gone())));
                return None;
            }
            state.queued.push_back(job);
            // Threads that compute start each other: a start deepens the caller's stack.
            let by_caller = self.0.jobs != JobKind::Compute || state.running == 0;
            let thread = by_caller.then(|| self.0.grow(&mut state)).flatten();
            // Some are free and look for a job before they wait.
            let awake = state.free().saturating_sub(state.idle.len());
            let is_late = state.queued.len() > awake;
            (thread, is_late.then(|| state.idle.pop()).flatten())
        };
        if let Some(idle) = idle {
            idle.ring();
        }
        thread
    }
}

impl PoolState {
    /// How many threads run no job.
    fn free(&self) -> usize {
        self.running.saturating_sub(self.busy)
    }
}

fn client_is_gone() -> Error {
    Error::stopped("the client is gone")
}

impl PoolInner {
    /// Counts one more thread if more jobs are queued than threads are free.
    fn grow(self: &Arc<Self>, state: &mut PoolState) -> Option<NewThread> {
        let is_behind = state.queued.len() > state.free();
        let grows = is_behind && state.running < self.threads_max && !state.closed;
        if grows {
            state.running = state.running.saturating_add(1);
            state.started = state.started.wrapping_add(1);
        }
        grows.then(|| NewThread(Some(Arc::clone(self))))
    }

    /// Uncounts a thread that was not started. Without a running thread, all queued jobs receive
    /// the error.
    fn count_out(&self, why: &str) {
        let refused = {
            let mut state = self.state.lock();
            state.running = state.running.saturating_sub(1);
            if state.running > 0 {
                return;
            }
            std::mem::take(&mut state.queued)
        };
        let name = self.name;
        let message = format!("the system has no {name:?} thread for the request: {why}");
        let error = Error::new(ErrorKind::Resources, message);
        for job in refused {
            drop(job(Err(error.clone())));
        }
    }

    fn work(self: &Arc<Self>) {
        let bell = Arc::default();
        let mut next = self.next(&bell);
        while let Some((job, thread)) = next {
            if let Some(thread) = thread {
                thread.start();
            }
            let left = guard(format_args!("a job of the {} threads", self.name), || {
                job(Ok(()))
            });
            {
                let mut state = self.state.lock();
                state.busy = state.busy.saturating_sub(1);
            }
            let dropped = left.and_then(|left| guard("the drop of what a job left", || drop(left)));
            if let Err(error) = dropped {
                log::error!("{error}");
            }
            next = self.next(&bell);
        }
        // The system keeps an ended thread until it is joined. The last thread joins the others.
        let is_finished = |thread: &mut Worker| thread.is_finished();
        let mut state = self.state.lock();
        let ended: Vec<_> = state.threads.extract_if(.., is_finished).collect();
        drop(state);
        drop(ended);
    }

    /// Waits for the next job, which `bell` announces. Returns it, and a thread to start for the
    /// jobs behind it. `None` ends the thread.
    fn next(self: &Arc<Self>, bell: &Arc<Bell>) -> Option<(Job, Option<NewThread>)> {
        let clock = Clock::system();
        let mut state = self.state.lock();
        let mut idle_until = None;
        loop {
            state.idle.retain(|idle| !Arc::ptr_eq(idle, bell));
            if let Some(job) = state.queued.pop_front() {
                state.busy = state.busy.saturating_add(1);
                let thread = self.grow(&mut state);
                return Some((job, thread));
            }
            let stays = self.jobs == JobKind::Compute && state.idle.is_empty();
            let until = *idle_until.get_or_insert_with(|| {
                if stays {
                    Deadline::NEVER
                } else {
                    clock.after(LINGER)
                }
            });
            let is_needless = until.has_passed(clock.now()) || state.idle.len() >= IDLE_MAX;
            if state.closed || is_needless {
                state.running = state.running.saturating_sub(1);
                return None;
            }
            state.idle.push(Arc::clone(bell));
            state = clock.wait_for_bell(&self.state, bell, state, until);
        }
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        let (threads, refused, idle, busy) = {
            let mut state = self.0.0.state.lock();
            state.closed = true;
            let threads = std::mem::take(&mut state.threads);
            let refused = std::mem::take(&mut state.queued);
            let idle = std::mem::take(&mut state.idle);
            (threads, refused, idle, state.busy)
        };
        for bell in idle {
            bell.ring();
        }
        for job in refused {
            drop(job(Err(client_is_gone())));
        }
        let (patience, level) = match self.0.0.jobs {
            JobKind::Hang if busy > 0 => (Duration::ZERO, Level::Debug),
            JobKind::EndsWithin(patience) => (patience, Level::Warn),
            JobKind::Compute | JobKind::Wait | JobKind::Hang => return,
        };
        let clock = Clock::system();
        let until = clock.after(patience);
        for thread in threads {
            if thread.ending().wait_until(&clock, until) != Ok(true) {
                let name = self.0.0.name;
                log::log!(
                    level,
                    "the client does not wait for a {name} thread, which ends with its job"
                );
                thread.abandon();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::{Receiver, Sender, bounded};

    use super::*;
    use crate::guard::guard_call;
    use crate::tests::until::until;

    impl ThreadPool {
        /// How many threads were started so far.
        pub(crate) fn started(&self) -> usize {
            self.0.0.state.lock().started
        }
    }

    /// Makes a job of `work`, and the receiver of its result.
    fn answering<T: Send + 'static>(
        work: impl FnOnce() -> T + Send + 'static,
    ) -> (Job, Receiver<Result<T, Error>>) {
        let (reply, answer) = bounded(1);
        let job = move |begun: Result<(), Error>| {
            let result = begun.and_then(|()| guard_call("a job", || Ok(work())));
            drop(reply.send(result));
            None
        };
        (Box::new(job), answer)
    }

    fn run<T: Send + 'static>(
        threads: &ThreadPool,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Receiver<Result<T, Error>> {
        let (job, answer) = answering(work);
        threads.run(job);
        answer
    }

    const THREADS_MAX: usize = 8;

    /// Jobs that each report their begin, and then wait for a permit to end.
    struct GatedJobs {
        jobs: Vec<Receiver<Result<(), Error>>>,
        started: Receiver<()>,
        open: Sender<()>,
    }

    impl GatedJobs {
        fn run(threads: &ThreadPool, count: usize) -> Self {
            let (begun, started) = bounded(count);
            let (open, gate) = bounded(count);
            let job = || {
                let (begun, gate) = (begun.clone(), gate.clone());
                run(threads, move || {
                    begun.send(()).unwrap();
                    gate.recv().unwrap();
                })
            };
            let jobs = (0..count).map(|_| job()).collect();
            Self {
                jobs,
                started,
                open,
            }
        }

        fn wait_until_begun(&self, count: usize) {
            for _ in 0..count {
                self.started.recv().unwrap();
            }
        }

        fn finish(self) {
            for _ in &self.jobs {
                self.open.send(()).unwrap();
            }
            for job in self.jobs {
                job.recv().unwrap().unwrap();
            }
        }
    }

    /// The caller with a job that computes starts a thread only if there is none; the threads start
    /// the others.
    #[test]
    fn a_thread_that_is_behind_starts_others_up_to_the_maximum() {
        let threads = ThreadPool::new("t", THREADS_MAX, JobKind::Compute);
        let (first, opened) = bounded::<()>(0);
        let first_job = run(&threads, move || opened.recv().unwrap());
        let jobs = GatedJobs::run(&threads, 2 * THREADS_MAX);
        first.send(()).unwrap();
        first_job.recv().unwrap().unwrap();
        jobs.wait_until_begun(THREADS_MAX);
        assert_eq!(threads.0.0.state.lock().running, THREADS_MAX);
        jobs.finish();
    }

    /// Jobs that wait for a peer do not wait for each other.
    #[test]
    fn each_job_that_waits_has_a_thread_and_none_stays() {
        let threads = ThreadPool::new("t", usize::MAX, JobKind::Wait);
        let jobs = GatedJobs::run(&threads, THREADS_MAX);
        jobs.wait_until_begun(THREADS_MAX);
        jobs.finish();
        let inner = Arc::clone(&threads.0.0);
        drop(threads);
        assert_eq!(inner.state.lock().running, 0);
    }

    #[test]
    fn one_thread_that_computes_waits_for_the_next_job() {
        let threads = ThreadPool::new("t", THREADS_MAX, JobKind::Compute);
        for _ in 0..3 {
            run(&threads, || ()).recv().unwrap().unwrap();
            until(|| threads.0.0.state.lock().idle.len() == 1);
        }
        assert_eq!(threads.started(), 1);
    }

    /// Callers count on the one reader that stays: it survives the panics of its jobs.
    #[test]
    fn a_panic_is_the_error_of_its_own_job_and_the_threads_go_on() {
        let threads = ThreadPool::new("t", 1, JobKind::Compute);
        let broken: Receiver<Result<(), Error>> = run(&threads, || panic!("told"));
        let error = broken.recv().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Panicked);
        assert_eq!(error.to_string(), "a job panicked: told");
        assert_eq!(run(&threads, || 1).recv().unwrap().unwrap(), 1);
    }

    /// What a job leaves may be the program's.
    #[test]
    fn what_a_job_leaves_may_panic_when_it_is_dropped() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("told");
            }
        }
        let threads = ThreadPool::new("t", 1, JobKind::Compute);
        threads.run(Box::new(|_begun| {
            let left: Leftover = Arc::new(Bomb);
            Some(left)
        }));
        assert_eq!(run(&threads, || 1).recv().unwrap().unwrap(), 1);
        until(|| threads.0.0.state.lock().idle.len() == 1);
        assert_eq!(threads.started(), 1);
    }

    #[test]
    fn a_job_without_a_thread_is_left_to_the_others_or_told() {
        let threads = ThreadPool::new("t", 2, JobKind::Wait);
        let (job, answer) = answering(|| 1);
        drop(threads.queue().submit(job));
        let error = answer.recv().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Resources);
        assert_eq!(threads.0.0.state.lock().running, 0);
        let (open, gate) = bounded::<()>(0);
        let busy = run(&threads, move || gate.recv().unwrap());
        let (job, answer) = answering(|| 2);
        drop(threads.queue().submit(job));
        open.send(()).unwrap();
        busy.recv().unwrap().unwrap();
        assert_eq!(answer.recv().unwrap().unwrap(), 2);
    }

    #[test]
    fn a_starter_behind_its_owner_starts_nothing_that_works() {
        let threads = ThreadPool::new("t", 1, JobKind::Wait);
        let inner = Arc::clone(&threads.0.0);
        let (job, answer) = answering(|| 1);
        let thread = threads.queue().submit(job).unwrap();
        drop(threads);
        assert!(answer.recv().unwrap().is_err());
        drop(thread);
        assert_eq!(inner.state.lock().running, 0);
    }

    /// A job may be the program's, which may ask again at once.
    #[test]
    fn a_job_that_a_closed_queue_refuses_may_queue_another() {
        let threads = ThreadPool::new("t", 1, JobKind::Wait);
        let queue = threads.queue().clone();
        drop(threads);
        let (again, answer) = answering(|| 1);
        let inner = queue.clone();
        let job = move |begun: Result<(), Error>| {
            begun.unwrap_err();
            drop(inner.submit(again));
            None
        };
        drop(queue.submit(Box::new(job)));
        answer.recv().unwrap().unwrap_err();
    }

    /// Starts a job that waits for the second, and then reports its end by the third.
    fn gated(jobs: JobKind) -> (ThreadPool, Sender<()>, Receiver<()>) {
        let (ended, end) = bounded(1);
        let (begun, started) = bounded(1);
        let (open, gate) = bounded::<()>(1);
        let threads = ThreadPool::new("t", THREADS_MAX, jobs);
        let job = run(&threads, move || {
            begun.send(()).unwrap();
            gate.recv().unwrap();
            ended.send(()).unwrap();
        });
        drop(job);
        started.recv().unwrap();
        (threads, open, end)
    }

    #[test]
    fn no_thread_outlives_the_owner() {
        for jobs in [JobKind::Compute, JobKind::EndsWithin(Duration::MAX)] {
            let (threads, open, end) = gated(jobs);
            open.send(()).unwrap();
            drop(threads);
            end.try_recv()
                .expect("joined, so its last act has happened");
        }
    }

    /// Seen: the drop of a client waited for a plugin on a disk that hung, without end.
    #[test]
    fn a_job_that_hangs_holds_up_the_owner_for_its_time_alone() {
        for jobs in [
            JobKind::Hang,
            JobKind::EndsWithin(Duration::from_millis(20)),
        ] {
            let (threads, open, end) = gated(jobs);
            drop(threads);
            assert!(end.is_empty());
            open.send(()).unwrap();
            end.recv().unwrap();
        }
    }
}
