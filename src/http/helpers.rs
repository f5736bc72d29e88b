//! Work that nothing can interrupt (a name lookup, a read of a file), on helper threads: whoever
//! waits for it can be stopped.

use std::fmt::Display;
use std::time::{Duration, Instant};

use super::handover::{Giver, Taker, handover};
use super::thread_pool::{Jobs, ThreadPool};
use crate::clock::Clock;
use crate::error::Error;
use crate::guard::guard_call;
use crate::sync::{Arc, Mutex, ProcessCounter, Rank, atomic::Ordering};

/// Answers questions on a few threads, which live while there is a question. Equal questions share
/// an answer.
pub(crate) struct Helpers<Q, T> {
    threads: ThreadPool,
    /// A question that a thread is at for so long is asked anew by the next who has it, on another
    /// thread.
    stuck_after: Duration,
    work: Arc<Work<Q, T>>,
    questions: Arc<Mutex<Vec<SharedQuestion<Q, T>>>>,
}

type Work<Q, T> = dyn Fn(&Q) -> Result<T, Error> + Send + Sync;

struct SharedQuestion<Q, T> {
    id: u64,
    what: Q,
    waiters: Vec<Giver<Result<T, Error>>>,
    /// Since when a thread is at it.
    begun: Option<Instant>,
}

impl<Q, T> SharedQuestion<Q, T> {
    fn is_stuck(&self, stuck_after: Duration) -> bool {
        let now = Clock::system().now();
        let begun = self.begun;
        begun.is_some_and(|since| now.saturating_duration_since(since) >= stuck_after)
    }
}

impl<Q, T> Helpers<Q, T>
where
    Q: Clone + Eq + Display + Send + 'static,
    T: Clone + Send + 'static,
{
    /// At most `threads_max` threads called `name`; `work` is guarded against panics.
    pub(crate) fn new(
        name: &'static str,
        threads_max: usize,
        stuck_after: Duration,
        work: impl Fn(&Q) -> Result<T, Error> + Send + Sync + 'static,
    ) -> Self {
        Self {
            threads: ThreadPool::new(name, threads_max, Jobs::Hang),
            stuck_after,
            work: Arc::new(work),
            questions: Arc::new(Mutex::ranked(Rank::HELPERS, Vec::new())),
        }
    }

    /// Asks `question`, or joins those who wait for its answer. Never blocks: the answer comes to
    /// the taker; it is `Resources` when the system has no thread to give.
    pub(crate) fn ask(&self, question: Q) -> Taker<Result<T, Error>> {
        static IDS: ProcessCounter = ProcessCounter::new(0);
        let (waiter, answer) = handover();
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        {
            let mut questions = self.questions.lock();
            let mut asked = questions.iter_mut();
            let same =
                asked.find(|asked| asked.what == question && !asked.is_stuck(self.stuck_after));
            if let Some(asked) = same {
                // The work may hang for longer than all who asked for it.
                asked.waiters.retain(Giver::is_wanted);
                asked.waiters.push(waiter);
                return answer;
            }
            questions.push(SharedQuestion {
                id,
                what: question.clone(),
                waiters: vec![waiter],
                begun: None,
            });
        }
        let (work, questions) = (Arc::clone(&self.work), Arc::clone(&self.questions));
        let job = move |begun: Result<(), Error>| {
            if let Some(asked) = questions.lock().iter_mut().find(|asked| asked.id == id) {
                asked.begun = Some(Clock::system().now());
            }
            let answer = begun.and_then(|()| guard_call(&question, || work(&question)));
            let ended = {
                let mut questions = questions.lock();
                let place = questions.iter().position(|asked| asked.id == id);
                place.map(|place| questions.remove(place))
            };
            for waiter in ended.into_iter().flat_map(|ended| ended.waiters) {
                // A waiter that is gone needs no answer.
                waiter.give(answer.clone(), None);
            }
        };
        if let Some(thread) = self.threads.submit(Box::new(job)) {
            thread.start();
        }
        answer
    }

    /// Whether a thread is at a question for at least so long.
    pub(crate) fn is_stuck(&self, so_long: Duration) -> bool {
        let questions = self.questions.lock();
        questions.iter().any(|asked| asked.is_stuck(so_long))
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::{Receiver, Sender, bounded};

    use super::super::blocking::{Blocking, Until};
    use super::*;
    use crate::worker::StopToken;

    fn call() -> Blocking {
        Blocking::new(&StopToken::never(), Until::NEVER).unwrap()
    }

    /// Helpers that tell each question they are at, and answer when they are let go.
    fn gated(
        threads_max: usize,
        stuck_after: Duration,
    ) -> (Helpers<String, usize>, Receiver<String>, Sender<()>) {
        let (begun, questions) = bounded(99);
        let (open, gate) = bounded(99);
        let helpers = Helpers::new(
            "t-help",
            threads_max,
            stuck_after,
            move |question: &String| {
                begun.send(question.clone()).unwrap();
                gate.recv().unwrap();
                Ok(question.len())
            },
        );
        (helpers, questions, open)
    }

    #[test]
    fn equal_questions_share_an_answer_until_one_is_stuck() {
        let (helpers, questions, open) = gated(2, Duration::MAX);
        let answers = [0, 1].map(|_| helpers.ask("a".to_owned()));
        assert_eq!(questions.recv().unwrap(), "a");
        open.send(()).unwrap();
        for answer in answers {
            assert_eq!(answer.answer(&call()).unwrap(), 1);
        }
        assert!(questions.is_empty());

        let (helpers, questions, open) = gated(2, Duration::ZERO);
        let first = helpers.ask("a".to_owned());
        assert_eq!(questions.recv().unwrap(), "a");
        let second = helpers.ask("a".to_owned());
        assert_eq!(questions.recv().unwrap(), "a", "asked again beside it");
        // Both threads are taken: the third question waits, and is one.
        let waiting = [0, 1].map(|_| helpers.ask("a".to_owned()));
        assert_eq!(helpers.questions.lock().len(), 3);
        for _ in 0..3 {
            open.send(()).unwrap();
        }
        for answer in [first, second].into_iter().chain(waiting) {
            assert_eq!(answer.answer(&call()).unwrap(), 1);
        }
    }

    #[test]
    fn waiters_that_went_are_forgotten_while_the_work_hangs() {
        let (helpers, questions, open) = gated(1, Duration::MAX);
        let kept = helpers.ask("a".to_owned());
        questions.recv().unwrap();
        for _ in 0..100 {
            drop(helpers.ask("a".to_owned()));
        }
        let waiters = helpers.questions.lock()[0].waiters.len();
        assert!(waiters <= 2, "{waiters}");
        open.send(()).unwrap();
        assert_eq!(kept.answer(&call()).unwrap(), 1);
    }

    #[test]
    fn dropping_them_waits_for_no_work_and_asks_nothing_more() {
        let (helpers, questions, open) = gated(1, Duration::MAX);
        let stuck = helpers.ask("stuck".to_owned());
        questions.recv().unwrap();
        let unasked = helpers.ask("unasked".to_owned());
        drop(helpers);
        assert!(unasked.answer(&call()).is_err());
        open.send(()).unwrap();
        assert_eq!(stuck.answer(&call()).unwrap(), 5);
        assert!(questions.is_empty());
    }
}
