//! Connections are made, and requests sent, on short-lived threads, which hand over what is then read: a stack stays
//! resident as deep as it was ever used, and a watching thread's is to stay shallow.

use std::collections::VecDeque;

use super::handover::{Taker, handover};
use crate::error::{Error, ErrorKind};
use crate::sync::{Arc, Mutex};
use crate::worker::Worker;

type Job = Box<dyn FnOnce() + Send>;

/// Runs jobs on a bounded number of threads, waited-for ones first; a thread ends when there is no job left.
pub(crate) struct Threads {
    name: &'static str,
    threads_max: usize,
    shared: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    waited_for: VecDeque<Job>,
    others: VecDeque<Job>,
    running: usize,
    started: usize,
    threads: Vec<Worker>,
}

impl Threads {
    /// Threads called `name-1` and so on, at most `threads_max` at a time.
    pub(crate) fn new(name: &'static str, threads_max: usize) -> Self {
        Self {
            name,
            threads_max,
            shared: Arc::new(Mutex::new(State::default())),
        }
    }

    /// Runs `job` on a thread soon and gives its result to the receiver.
    ///
    /// # Errors
    ///
    /// `Resources`, when there is no thread to run it.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        waited_for: bool,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Taker<T>, Error> {
        let (reply, answer) = handover(1);
        // Whoever asked may have gone: then the result goes too.
        self.push(
            waited_for,
            Box::new(move || {
                reply.give(job());
            }),
        )?;
        Ok(answer)
    }

    fn push(&self, waited_for: bool, job: Job) -> Result<(), Error> {
        let name = {
            let mut state = self.shared.lock();
            if waited_for {
                state.waited_for.push_back(job);
            } else {
                state.others.push_back(job);
            }
            if state.running == self.threads_max {
                return Ok(());
            }
            state.running = state.running.saturating_add(1);
            state.started = state.started.wrapping_add(1);
            format!("{}-{}", self.name, state.started)
        };
        let shared = Arc::clone(&self.shared);
        match Worker::spawn(name, move |_| work(&shared)) {
            Ok(worker) => {
                self.shared.lock().threads.push(worker);
                Ok(())
            }
            Err(error) => self.without_a_thread(&error),
        }
    }

    /// Leaves the job to the threads that run; without any, all that waits is given up.
    fn without_a_thread(&self, error: &std::io::Error) -> Result<(), Error> {
        let given_up = {
            let mut state = self.shared.lock();
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
}

fn work(shared: &Mutex<State>) {
    while let Some(job) = next(shared) {
        job();
    }
    // The system keeps an ended thread until it is joined; the last to leave takes the others along.
    let ended: Vec<Worker> = {
        let mut state = shared.lock();
        let all = std::mem::take(&mut state.threads);
        let (ended, rest) = all.into_iter().partition(Worker::is_finished);
        state.threads = rest;
        ended
    };
    drop(ended);
}

fn next(shared: &Mutex<State>) -> Option<Job> {
    let mut state = shared.lock();
    let job = state
        .waited_for
        .pop_front()
        .or_else(|| state.others.pop_front());
    if job.is_none() {
        state.running = state.running.saturating_sub(1);
    }
    job
}

impl Drop for Threads {
    fn drop(&mut self) {
        let threads = std::mem::take(&mut self.shared.lock().threads);
        drop(threads);
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::bounded;

    use super::super::blocking::{Blocking, Until};
    use super::super::wakeup::WakeUp;
    use super::*;
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
        assert_eq!(threads.shared.lock().running, THREADS_MAX);
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
