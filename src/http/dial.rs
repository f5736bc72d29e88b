//! Connections are made, and requests sent, on short-lived threads, which hand over what is then read: a stack stays
//! resident as deep as it was ever used, and a watching thread's is to stay shallow.

use std::collections::VecDeque;

use super::handover::{Taker, handover};
use crate::error::{Error, ErrorKind};
use crate::sync::{Arc, Monitor};
use crate::worker::Worker;

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
        let (answer, grow) = self.queue(waited_for, job);
        if grow {
            self.shared.grow()?;
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
        let (answer, grow) = self.queue(waited_for, job);
        if grow {
            let shared = Arc::clone(&self.shared);
            // If it fails, the jobs are given up, and the taker of this one is told so.
            drop(starters.run(true, move || drop(shared.grow()))?);
        }
        Ok(answer)
    }

    fn queue<T: Send + 'static>(
        &self,
        waited_for: bool,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> (Taker<T>, bool) {
        let (reply, answer) = handover(1);
        // Whoever asked may have gone: then the result goes too.
        let job: Job = Box::new(move || {
            reply.give(job());
        });
        let grow = {
            let mut state = self.shared.state.lock();
            if waited_for {
                state.waited_for.push_back(job);
            } else {
                state.others.push_back(job);
            }
            self.shared.has_to_grow(&mut state, true)
        };
        self.shared.state.notify_all();
        (answer, grow)
    }
}

impl Shared {
    /// Whether one more thread is to be started; it is counted at once.
    fn has_to_grow(&self, state: &mut State, by_caller: bool) -> bool {
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
        grow
    }

    /// Starts the thread that was counted.
    fn grow(self: &Arc<Self>) -> Result<(), Error> {
        let number = self.state.lock().started;
        let shared = Arc::clone(self);
        match Worker::spawn(format!("{}-{number}", self.name), move |_| shared.work()) {
            Ok(worker) => {
                self.state.lock().threads.push(worker);
                Ok(())
            }
            Err(error) => self.without_a_thread(&error),
        }
    }

    /// Leaves the job to the threads that run; without any, all that waits is given up.
    fn without_a_thread(&self, error: &std::io::Error) -> Result<(), Error> {
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
        let message = format!("no thread for a request: {error}");
        Err(Error::new(ErrorKind::Resources, message))
    }

    fn work(self: &Arc<Self>) {
        while let Some((job, grow)) = self.next() {
            if grow && let Err(error) = self.grow() {
                log::warn!("{error}");
            }
            job();
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
    fn next(&self) -> Option<(Job, bool)> {
        let mut state = self.state.lock();
        loop {
            let job = state.waited_for.pop_front();
            if let Some(job) = job.or_else(|| state.others.pop_front()) {
                let grow = self.resident && self.has_to_grow(&mut state, false);
                return Some((job, grow));
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
