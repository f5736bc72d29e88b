//! Connections are made, and requests sent, on short-lived threads, which hand over what is then read: a stack stays
//! resident as deep as it was ever used, and a watching thread's is to stay shallow.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::handover::{Taker, handover};
use crate::error::{Error, ErrorKind};
use crate::sync::{Arc, Monitor};
use crate::worker::{Worker, panic_text};

type Job = Box<dyn FnOnce() + Send>;

/// Runs jobs on a bounded number of threads, waited-for ones first; a thread ends when there is no job left.
pub(crate) struct Threads {
    shared: Arc<Shared>,
}

struct Shared {
    name: &'static str,
    threads_max: usize,
    /// Whether the first thread stays, so that whoever has a job seldom has to start one.
    resident: bool,
    state: Monitor<State>,
}

#[derive(Default)]
struct State {
    waited_for: VecDeque<Job>,
    others: VecDeque<Job>,
    running: usize,
    resting: bool,
    started: usize,
    closed: bool,
    threads: Vec<Worker>,
}

/// A thread that is counted and not started yet. Dropped before it is, it is counted out again.
struct Counted(Option<Arc<Shared>>);

impl Counted {
    /// Starts it.
    ///
    /// # Errors
    ///
    /// `Resources`, when there is no thread, and none that runs either: then what waits is given up.
    fn start(mut self) -> Result<(), Error> {
        let Some(shared) = self.0.take() else {
            return Ok(());
        };
        let number = {
            let state = shared.state.lock();
            if state.closed {
                drop(state);
                return shared.count_out("the client is gone");
            }
            state.started
        };
        let working = Arc::clone(&shared);
        let spawned = Worker::spawn(format!("{}-{number}", shared.name), move |_| working.work());
        match spawned {
            Ok(worker) => {
                let unowned = shared.own(worker);
                // The owner went meanwhile and joined the others: this one is joined here.
                drop(unowned);
                Ok(())
            }
            Err(error) => shared.count_out(&error.to_string()),
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(shared) = self.0.take()
            && let Err(error) = shared.count_out("whoever was to start it is gone")
        {
            log::warn!("{error}");
        }
    }
}

impl Threads {
    /// Threads called `name-1` and so on, at most `threads_max` at a time.
    pub(crate) fn new(name: &'static str, threads_max: usize) -> Self {
        Self::build(name, threads_max, false)
    }

    /// The same, of which one stays once there was a job. Jobs are to be short: others start when that one is behind.
    pub(crate) fn with_resident(name: &'static str, threads_max: usize) -> Self {
        Self::build(name, threads_max, true)
    }

    fn build(name: &'static str, threads_max: usize, resident: bool) -> Self {
        Self {
            shared: Arc::new(Shared {
                name,
                threads_max,
                resident,
                state: Monitor::new(State::default()),
            }),
        }
    }

    /// Runs `job` on a thread soon and gives its result to the taker.
    ///
    /// # Errors
    ///
    /// `Resources`, when there is no thread to run it.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        waited_for: bool,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Taker<T>, Error> {
        let (answer, counted) = self.queue(waited_for, job)?;
        if let Some(counted) = counted {
            counted.start()?;
        }
        Ok(answer)
    }

    /// The same, with a thread that is started, if one has to be, by one of `starters`: starting one leaves traces in
    /// the caller's stack and allocator cache.
    ///
    /// # Errors
    ///
    /// `Resources`, when there is no thread to start it.
    pub(crate) fn run_by<T: Send + 'static>(
        &self,
        starters: &Self,
        waited_for: bool,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Taker<T>, Error> {
        let (answer, counted) = self.queue(waited_for, job)?;
        if let Some(counted) = counted {
            // If it fails, the jobs are given up, and the taker of this one is told so.
            drop(starters.run(true, move || drop(counted.start()))?);
        }
        Ok(answer)
    }

    fn queue<T: Send + 'static>(
        &self,
        waited_for: bool,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(Taker<T>, Option<Counted>), Error> {
        let (reply, answer) = handover(1);
        // Whoever asked may have gone: then the result goes too.
        let job: Job = Box::new(move || {
            reply.give(job());
        });
        let counted = {
            let mut state = self.shared.state.lock();
            if state.closed {
                return Err(no_thread("the client is gone"));
            }
            if waited_for {
                state.waited_for.push_back(job);
            } else {
                state.others.push_back(job);
            }
            self.shared.has_to_grow(&mut state, true)
        };
        self.shared.state.notify_all();
        Ok((answer, counted))
    }
}

impl Shared {
    /// Whether one more thread is to be started; it is counted at once.
    fn has_to_grow(self: &Arc<Self>, state: &mut State, by_caller: bool) -> Option<Counted> {
        let queued = state.waited_for.len().saturating_add(state.others.len());
        let behind = if by_caller && self.resident {
            state.running == 0
        } else {
            queued > usize::from(state.resting)
        };
        let grow = behind && state.running < self.threads_max && !state.closed;
        if grow {
            state.running = state.running.saturating_add(1);
            state.started = state.started.wrapping_add(1);
        }
        grow.then(|| Counted(Some(Arc::clone(self))))
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

    /// Leaves the job of a thread that is not started to those that run; without any, all that waits is given up.
    fn count_out(&self, why: &str) -> Result<(), Error> {
        let given_up = {
            let mut state = self.state.lock();
            state.running = state.running.saturating_sub(1);
            if state.running > 0 {
                return Ok(());
            }
            let waited_for = std::mem::take(&mut state.waited_for);
            (waited_for, std::mem::take(&mut state.others))
        };
        drop(given_up);
        Err(no_thread(why))
    }

    fn work(self: &Arc<Self>) {
        while let Some((job, counted)) = self.next() {
            if let Some(Err(error)) = counted.map(Counted::start) {
                log::warn!("{error}");
            }
            // A job decodes types of the program's own. Whoever waits for it is told by the promise it breaks.
            if let Err(payload) = catch_unwind(AssertUnwindSafe(job)) {
                let text = panic_text(payload.as_ref());
                log::error!("a job of the {} threads panicked: {text}", self.name);
            }
        }
        // The system keeps an ended thread until it is joined; the last to leave takes the others along.
        let ended: Vec<Worker> = {
            let mut state = self.state.lock();
            let all = std::mem::take(&mut state.threads);
            let (ended, rest) = all.into_iter().partition(Worker::is_finished);
            state.threads = rest;
            ended
        };
        drop(ended);
    }

    /// The next job, and whether a thread is to be started for those behind it. `None` ends the thread.
    fn next(self: &Arc<Self>) -> Option<(Job, Option<Counted>)> {
        let mut state = self.state.lock();
        loop {
            let job = state.waited_for.pop_front();
            if let Some(job) = job.or_else(|| state.others.pop_front()) {
                let resident = self.resident;
                let counted = resident.then(|| self.has_to_grow(&mut state, false));
                return Some((job, counted.flatten()));
            }
            if !self.resident || state.closed || state.resting {
                state.running = state.running.saturating_sub(1);
                return None;
            }
            state.resting = true;
            state = self.state.wait(state);
            state.resting = false;
        }
    }
}

fn no_thread(why: &str) -> Error {
    Error::new(
        ErrorKind::Resources,
        format!("no thread for a request: {why}"),
    )
}

impl Drop for Threads {
    fn drop(&mut self) {
        let threads = {
            let mut state = self.shared.state.lock();
            state.closed = true;
            std::mem::take(&mut state.threads)
        };
        self.shared.state.notify_all();
        drop(threads);
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::bounded;

    use super::super::blocking::{Blocking, Until};
    use super::super::halt::Halt;
    use super::super::wakeup::WakeUp;
    use super::*;
    use crate::sync::Mutex;
    use crate::worker::StopToken;

    fn call() -> Blocking {
        Blocking::new(&StopToken::never(), &WakeUp::new().unwrap(), Until::NEVER)
    }

    const THREADS_MAX: usize = 8;

    #[test]
    fn waited_for_jobs_overtake_and_the_number_of_threads_is_bounded() {
        let threads = Threads::new("t", THREADS_MAX);
        let (begun, started) = bounded(THREADS_MAX);
        let (open, gate) = bounded::<()>(0);
        let mut blocked = Vec::new();
        for _ in 0..THREADS_MAX {
            let (begun, gate) = (begun.clone(), gate.clone());
            let job = move || {
                begun.send(()).unwrap();
                gate.recv().unwrap();
            };
            blocked.push(threads.run(false, job).unwrap());
        }
        for _ in 0..THREADS_MAX {
            started.recv().unwrap();
        }
        let order = Arc::new(Mutex::new(Vec::new()));
        let note = |name: &'static str| {
            let order = Arc::clone(&order);
            move || order.lock().push(name)
        };
        let other = threads.run(false, note("other")).unwrap();
        let waited_for = threads.run(true, note("waited for")).unwrap();
        assert_eq!(threads.shared.state.lock().running, THREADS_MAX);
        // One thread is let go: it runs both, in this order.
        open.send(()).unwrap();
        waited_for.take_one(&call()).unwrap();
        other.take_one(&call()).unwrap();
        assert_eq!(*order.lock(), ["waited for", "other"]);
        for _ in 1..THREADS_MAX {
            open.send(()).unwrap();
        }
        for job in blocked {
            job.take_one(&call()).unwrap();
        }
    }

    /// A reader that stays is the one thread callers count on: it survives what it runs.
    #[test]
    fn a_panic_breaks_one_promise_and_the_threads_go_on() {
        let threads = Threads::with_resident("t", 1);
        let broken = threads.run(true, || panic!("told")).unwrap();
        let broken: Result<(), _> = broken.take_one(&call());
        assert!(matches!(broken, Err(Halt::Failed(_))), "{broken:?}");
        let kept = threads.run(true, || 1).unwrap();
        assert_eq!(kept.take_one(&call()).unwrap(), 1);
    }

    #[test]
    fn a_thread_that_nobody_starts_is_not_counted() {
        let threads = Threads::new("t", 1);
        let gone = Threads::new("t-start", 1);
        gone.shared.state.lock().closed = true;
        assert!(threads.run_by(&gone, true, || 1).is_err());
        assert_eq!(threads.shared.state.lock().running, 0);
        assert!(threads.shared.state.lock().waited_for.is_empty());
        let starters = Threads::new("t-start", 1);
        let run = threads.run_by(&starters, true, || 2).unwrap();
        assert_eq!(run.take_one(&call()).unwrap(), 2);
    }

    #[test]
    fn a_starter_behind_its_owner_starts_nothing() {
        let threads = Threads::new("t", 1);
        let shared = Arc::clone(&threads.shared);
        let (answer, counted) = threads.queue(true, || 1).unwrap();
        drop(threads);
        assert!(counted.unwrap().start().is_err());
        assert!(answer.take_one(&call()).is_err());
        assert_eq!(shared.state.lock().running, 0);
    }

    #[test]
    fn no_thread_outlives_the_owner() {
        let (ended, end) = bounded(1);
        let (begun, started) = bounded(1);
        let (open, gate) = bounded::<()>(1);
        let threads = Threads::new("t", THREADS_MAX);
        let job = move || {
            begun.send(()).unwrap();
            gate.recv().unwrap();
            ended.send(()).unwrap();
        };
        drop(threads.run(false, job).unwrap());
        started.recv().unwrap();
        open.send(()).unwrap();
        drop(threads);
        end.try_recv()
            .expect("joined, so its last act has happened");
    }
}
