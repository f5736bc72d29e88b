//! Threads for work that nothing can interrupt, such as a name lookup or a read of a file. The
//! waits for the results can be stopped.

#[cfg(all(test, shuttle))]
mod schedules;

use std::time::{Duration, Instant};

use super::channel::{ItemReceiver, ItemSender, channel};
use crate::clock::Clock;
use crate::error::Error;
use crate::guard::guard_call;
use crate::jobs::{JobKind, Leftover, ThreadPool};
use crate::sync::{Arc, Mutex, Rank};

/// A few threads, which live while there is work. Callers that ask for work of the same name at the
/// same time share one run of it.
pub(crate) struct HelperThreads<T> {
    threads: ThreadPool,
    /// After this time a run counts as stuck, and the next caller starts another one.
    stuck_after: Duration,
    tasks: Arc<Mutex<Vec<HelperTask<T>>>>,
}

struct HelperTask<T> {
    /// Equal names share a result. The pointer identifies the task.
    name: Arc<str>,
    waiters: Vec<ItemSender<Result<T, Error>>>,
    /// When a thread began the task.
    begun: Option<Instant>,
}

impl<T> HelperTask<T> {
    fn is_stuck(&self, stuck_after: Duration) -> bool {
        let now = Clock::system().now();
        let begun = self.begun;
        begun.is_some_and(|since| now.saturating_duration_since(since) >= stuck_after)
    }
}

/// The result of a run. Its callers receive it when this is dropped.
///
/// At its end the pool leaves a busy thread behind, as if that hung. So callers go on only after
/// the thread of their run is free.
struct TaskResult<T: Clone + Send + 'static> {
    ended: Vec<HelperTask<T>>,
    result: Result<T, Error>,
}

impl<T: Clone + Send + 'static> Drop for TaskResult<T> {
    fn drop(&mut self) {
        for waiter in self.ended.iter().flat_map(|ended| &ended.waiters) {
            // A waiter that is gone needs no result.
            let _sent = waiter.send(self.result.clone(), None);
        }
    }
}

impl<T: Clone + Send + Sync + 'static> HelperThreads<T> {
    /// Makes at most `threads_max` threads, called `name-1` and so on. `jobs` says whether the work
    /// can be ended.
    pub(crate) fn new(
        name: &'static str,
        threads_max: usize,
        stuck_after: Duration,
        jobs: JobKind,
    ) -> Self {
        Self {
            threads: ThreadPool::new(name, threads_max, jobs),
            stuck_after,
            tasks: Arc::new(Mutex::ranked(Rank::HELPERS, Vec::new())),
        }
    }

    /// Starts `work` on a thread, or joins the callers that wait for work of the same name.
    ///
    /// Never blocks. The returned end receives the result: `Panicked` after a panic, or `Resources`
    /// if the system has no thread.
    pub(crate) fn run(
        &self,
        name: &str,
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> ItemReceiver<Result<T, Error>> {
        let (waiter, result) = channel();
        let name: Arc<str> = Arc::from(name);
        {
            let mut tasks = self.tasks.lock();
            let same =
                |task: &&mut HelperTask<T>| task.name == name && !task.is_stuck(self.stuck_after);
            if let Some(task) = tasks.iter_mut().find(same) {
                // The work may hang for longer than its callers wait.
                task.waiters.retain(ItemSender::has_receiver);
                task.waiters.push(waiter);
                return result;
            }
            tasks.push(HelperTask {
                name: Arc::clone(&name),
                waiters: vec![waiter],
                begun: None,
            });
        }
        let tasks = Arc::clone(&self.tasks);
        let job = move |begun: Result<(), Error>| {
            let is_this = |task: &HelperTask<T>| Arc::ptr_eq(&task.name, &name);
            if let Some(task) = tasks.lock().iter_mut().find(|task| is_this(task)) {
                task.begun = Some(Clock::system().now());
            }
            let result = begun.and_then(|()| guard_call(&name, work));
            let ended = tasks.lock().extract_if(.., |task| is_this(task)).collect();
            let told: Leftover = Arc::new(TaskResult { ended, result });
            Some(told)
        };
        self.threads.run(Box::new(job));
        result
    }

    /// Whether some work has run for at least `so_long`.
    pub(crate) fn is_stuck(&self, so_long: Duration) -> bool {
        let tasks = self.tasks.lock();
        tasks.iter().any(|task| task.is_stuck(so_long))
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::{Receiver, Sender, bounded};

    use super::super::call_context::{CallContext, NamedDeadline};
    use super::*;
    use crate::worker::StopToken;

    fn call() -> CallContext {
        CallContext::new(&StopToken::never(), NamedDeadline::NEVER).unwrap()
    }

    /// Threads that report each name they begin, and go on when the gate opens.
    struct Gated {
        helpers: HelperThreads<usize>,
        begun: Sender<String>,
        gate: Receiver<()>,
    }

    impl Gated {
        fn run(&self, name: &str) -> ItemReceiver<Result<usize, Error>> {
            let (begun, gate, told) = (self.begun.clone(), self.gate.clone(), name.to_owned());
            self.helpers.run(name, move || {
                let length = told.len();
                begun.send(told).unwrap();
                gate.recv().unwrap();
                Ok(length)
            })
        }
    }

    fn gated(threads_max: usize, stuck_after: Duration) -> (Gated, Receiver<String>, Sender<()>) {
        let (begun, questions) = bounded(99);
        let (open, gate) = bounded(99);
        let helpers = HelperThreads::new("t-help", threads_max, stuck_after, JobKind::Hang);
        let gated = Gated {
            helpers,
            begun,
            gate,
        };
        (gated, questions, open)
    }

    #[test]
    fn equal_questions_share_an_answer_until_one_is_stuck() {
        let (helpers, questions, open) = gated(2, Duration::MAX);
        let answers = [0, 1].map(|_| helpers.run("a"));
        assert_eq!(questions.recv().unwrap(), "a");
        open.send(()).unwrap();
        for answer in answers {
            assert_eq!(answer.result(&call()).unwrap(), 1);
        }
        assert!(questions.is_empty());

        let (helpers, questions, open) = gated(2, Duration::ZERO);
        let first = helpers.run("a");
        assert_eq!(questions.recv().unwrap(), "a");
        let second = helpers.run("a");
        assert_eq!(questions.recv().unwrap(), "a", "asked again beside it");
        // Both threads are busy: the third name waits, and its two callers share one run.
        let waiting = [0, 1].map(|_| helpers.run("a"));
        assert_eq!(helpers.helpers.tasks.lock().len(), 3);
        for _ in 0..3 {
            open.send(()).unwrap();
        }
        for answer in [first, second].into_iter().chain(waiting) {
            assert_eq!(answer.result(&call()).unwrap(), 1);
        }
    }

    #[test]
    fn waiters_that_went_are_forgotten_while_the_work_hangs() {
        let (helpers, questions, open) = gated(1, Duration::MAX);
        let kept = helpers.run("a");
        questions.recv().unwrap();
        for _ in 0..100 {
            drop(helpers.run("a"));
        }
        let waiters = helpers.helpers.tasks.lock()[0].waiters.len();
        assert!(waiters <= 2, "{waiters}");
        open.send(()).unwrap();
        assert_eq!(kept.result(&call()).unwrap(), 1);
    }

    #[test]
    fn dropping_them_waits_for_no_work_and_asks_nothing_more() {
        let (helpers, questions, open) = gated(1, Duration::MAX);
        let stuck = helpers.run("stuck");
        questions.recv().unwrap();
        let unasked = helpers.run("unasked");
        drop(helpers);
        assert!(unasked.result(&call()).is_err());
        open.send(()).unwrap();
        assert_eq!(stuck.result(&call()).unwrap(), 5);
        assert!(questions.is_empty());
    }
}
