//! Threads for short jobs that wait for nothing: what came on a watch is decoded there, so that the
//! stack of a thread that watches stays shallow.

use std::collections::VecDeque;

use super::handover::{Taker, handover};
use crate::error::{Error, ErrorKind};
use crate::guard::guard;
use crate::sync::{Arc, Monitor};
use crate::worker::Worker;

type Job = Box<dyn FnOnce() + Send>;

/// Runs short jobs on a bounded number of threads. One thread stays once there was a job; others
/// start when that one is behind, and end when no job is left.
pub(crate) struct Threads {
    shared: Arc<Shared>,
}

struct Shared {
    name: &'static str,
    threads_max: usize,
    state: Monitor<State>,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
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
        Self {
            shared: Arc::new(Shared {
                name,
                threads_max,
                state: Monitor::new(State::default()),
            }),
        }
    }

    /// Runs `job` on a thread soon and gives its result to the receiver.
    ///
    /// # Errors
    ///
    /// `Resources`, when there is no thread to run it.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Taker<T>, Error> {
        let (answer, counted) = self.queue(job)?;
        if let Some(counted) = counted {
            counted.start()?;
        }
        Ok(answer)
    }

    fn queue<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(Taker<T>, Option<Counted>), Error> {
        let (reply, answer) = handover(1);
        // Whoever asked may have gone: then the result goes too.
        let job: Job = Box::new(move || {
            reply.give(job(), None);
        });
        let counted = {
            let mut state = self.shared.state.lock();
            if state.closed {
                return Err(no_thread("the client is gone"));
            }
            state.jobs.push_back(job);
            let behind = state.running == 0;
            self.shared.grow(&mut state, behind)
        };
        self.shared.state.notify_all();
        Ok((answer, counted))
    }
}

impl Shared {
    /// Whether one more thread is to be started for what is `behind`; it is counted at once.
    fn grow(self: &Arc<Self>, state: &mut State, behind: bool) -> Option<Counted> {
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

    /// Leaves the job of a thread that is not started to those that run; without any, all that
    /// waits is given up.
    fn count_out(&self, why: &str) -> Result<(), Error> {
        let given_up = {
            let mut state = self.state.lock();
            state.running = state.running.saturating_sub(1);
            if state.running > 0 {
                return Ok(());
            }
            std::mem::take(&mut state.jobs)
        };
        drop(given_up);
        Err(no_thread(why))
    }

    fn work(self: &Arc<Self>) {
        while let Some((job, counted)) = self.next() {
            if let Some(Err(error)) = counted.map(Counted::start) {
                log::warn!("{error}");
            }
            // Whoever waits for the job is told by the promise it breaks.
            if let Err(error) = guard(format_args!("a job of the {} threads", self.name), job) {
                log::error!("{error}");
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

    /// The next job, and whether a thread is to be started for those behind it. `None` ends the
    /// thread.
    fn next(self: &Arc<Self>) -> Option<(Job, Option<Counted>)> {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                let behind = state.jobs.len() > usize::from(state.resting);
                let counted = self.grow(&mut state, behind);
                return Some((job, counted));
            }
            if state.closed || state.resting {
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
    let message = format!("the system has no thread for a job of the client: {why}");
    Error::new(ErrorKind::Resources, message)
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
    use crate::worker::StopToken;

    fn call() -> Blocking {
        Blocking::new(&StopToken::never(), &WakeUp::new().unwrap(), Until::NEVER)
    }

    const THREADS_MAX: usize = 8;

    /// Whoever has a job starts a thread only if there is none; the threads start the others.
    #[test]
    fn a_thread_that_is_behind_starts_others_up_to_the_maximum() {
        let threads = Threads::new("t", THREADS_MAX);
        let (begun, started) = bounded(2 * THREADS_MAX);
        let (open, gate) = bounded::<()>(0);
        let (first, opened) = bounded::<()>(0);
        let first_job = threads.run(move || opened.recv().unwrap()).unwrap();
        let jobs: Vec<_> = (0..2 * THREADS_MAX)
            .map(|_| {
                let (begun, gate) = (begun.clone(), gate.clone());
                let job = move || {
                    begun.send(()).unwrap();
                    gate.recv().unwrap();
                };
                threads.run(job).unwrap()
            })
            .collect();
        first.send(()).unwrap();
        first_job.take_one(&call()).unwrap();
        for _ in 0..THREADS_MAX {
            started.recv().unwrap();
        }
        assert_eq!(threads.shared.state.lock().running, THREADS_MAX);
        for _ in 0..2 * THREADS_MAX {
            open.send(()).unwrap();
        }
        for job in jobs {
            job.take_one(&call()).unwrap();
        }
    }

    /// A reader that stays is the one thread callers count on: it survives what it runs.
    #[test]
    fn a_panic_breaks_one_promise_and_the_threads_go_on() {
        let threads = Threads::new("t", 1);
        let broken = threads.run(|| panic!("told")).unwrap();
        let broken: Result<(), _> = broken.take_one(&call());
        assert!(matches!(broken, Err(Halt::Failed(_))), "{broken:?}");
        let kept = threads.run(|| 1).unwrap();
        assert_eq!(kept.take_one(&call()).unwrap(), 1);
    }

    #[test]
    fn a_starter_behind_its_owner_starts_nothing() {
        let threads = Threads::new("t", 1);
        let shared = Arc::clone(&threads.shared);
        let (answer, counted) = threads.queue(|| 1).unwrap();
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
        drop(threads.run(job).unwrap());
        started.recv().unwrap();
        open.send(()).unwrap();
        drop(threads);
        end.try_recv()
            .expect("joined, so its last act has happened");
    }
}
