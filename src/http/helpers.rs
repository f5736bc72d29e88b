//! Work that nothing can interrupt (a name lookup, a read of a file), on helper threads: whoever
//! waits for it can be stopped.

use std::fmt::Display;
use std::time::{Duration, Instant};

use super::handover::{Giver, Taker, handover};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::guard::guard_call;
use crate::sync::{Arc, Mutex};
use crate::worker::Worker;

/// What a helper thread answers.
pub(crate) type Answer<T> = Result<T, Error>;

/// Answers questions on a few threads, which live while there is a question. Equal questions share
/// an answer.
pub(crate) struct Helpers<Q, T>(Arc<Shared<Q, T>>);

type Work<Q, T> = dyn Fn(&Q) -> Answer<T> + Send + Sync;

struct Shared<Q, T> {
    name: &'static str,
    threads_max: usize,
    /// A question that a thread is at for so long is asked anew by the next who has it, on another
    /// thread.
    stuck_after: Duration,
    work: Box<Work<Q, T>>,
    state: Mutex<State<Q, T>>,
}

struct State<Q, T> {
    /// In the order they came; those that are under way among them.
    questions: Vec<Question<Q, T>>,
    /// Threads that look for a question or are at one.
    running: usize,
    /// With those that have ended and were not joined yet.
    workers: Vec<(u64, Worker)>,
    next_id: u64,
}

struct Question<Q, T> {
    what: Q,
    waiters: Vec<Giver<Answer<T>>>,
    /// Which thread is at it, and since when.
    begun: Option<(u64, Instant)>,
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
        work: impl Fn(&Q) -> Answer<T> + Send + Sync + 'static,
    ) -> Self {
        let state = State {
            questions: Vec::new(),
            running: 0,
            workers: Vec::new(),
            next_id: 0,
        };
        Self(Arc::new(Shared {
            name,
            threads_max,
            stuck_after,
            work: Box::new(work),
            state: Mutex::new(state),
        }))
    }

    /// Asks `question`, or joins those who wait for its answer. Never blocks: the answer comes to
    /// the taker.
    ///
    /// # Errors
    ///
    /// `Resources`, when the system has no thread to give.
    pub(crate) fn ask(&self, question: Q) -> Result<Taker<Answer<T>>, Error> {
        let (waiter, answer) = handover(1);
        let starts = {
            let mut state = self.0.state.lock();
            let now = Clock::system().now();
            let is_new = state.add(question, waiter, now, self.0.stuck_after);
            let starts = is_new && state.running < self.0.threads_max;
            starts.then(|| {
                state.running = state.running.saturating_add(1);
                state.next_id = state.next_id.wrapping_add(1);
                state.next_id
            })
        };
        if let Some(id) = starts {
            self.start(id)?;
        }
        Ok(answer)
    }

    /// Whether a thread is at a question for at least so long.
    pub(crate) fn is_stuck(&self, so_long: Duration) -> bool {
        let now = Clock::system().now();
        let state = self.0.state.lock();
        let mut begun = state.questions.iter().filter_map(|asked| asked.begun);
        begun.any(|(_, since)| now.saturating_duration_since(since) >= so_long)
    }

    fn start(&self, id: u64) -> Result<(), Error> {
        let shared = Arc::clone(&self.0);
        let spawned = Worker::spawn(self.0.name, move |_| shared.run(id));
        let mut state = self.0.state.lock();
        let error = match spawned {
            Ok(worker) => {
                let all = std::mem::take(&mut state.workers).into_iter();
                let (ended, rest): (Vec<_>, _) = all.partition(|(_, worker)| worker.is_finished());
                state.workers = rest;
                state.workers.push((id, worker));
                drop(state);
                drop(ended);
                return Ok(());
            }
            Err(error) => error,
        };
        state.running = state.running.saturating_sub(1);
        // With nobody to answer them, those who wait are told by the promise that breaks.
        let unanswered = if state.running == 0 {
            std::mem::take(&mut state.questions)
        } else {
            Vec::new()
        };
        drop(state);
        drop(unanswered);
        let message = format!("no thread for the {}: {error}", self.0.name);
        Err(Error::new(ErrorKind::Resources, message))
    }
}

impl<Q: Clone + Eq, T> State<Q, T> {
    /// Whether nobody is at the question, or about to be.
    fn add(
        &mut self,
        question: Q,
        waiter: Giver<Answer<T>>,
        now: Instant,
        stuck_after: Duration,
    ) -> bool {
        let is_stuck = |begun: Option<(u64, Instant)>| {
            begun.is_some_and(|(_, since)| now.saturating_duration_since(since) >= stuck_after)
        };
        let same = |asked: &&mut Question<Q, T>| asked.what == question && !is_stuck(asked.begun);
        if let Some(asked) = self.questions.iter_mut().find(same) {
            // The work may hang for longer than all who asked for it.
            asked.waiters.retain(Giver::is_wanted);
            asked.waiters.push(waiter);
            return false;
        }
        self.questions.push(Question {
            what: question,
            waiters: vec![waiter],
            begun: None,
        });
        true
    }
}

impl<Q: Clone + Display, T: Clone> Shared<Q, T> {
    fn run(&self, id: u64) {
        while let Some(question) = self.begin(id) {
            let answer = guard_call(&question, || (self.work)(&question));
            for waiter in self.end(id) {
                // A waiter that is gone needs no answer.
                waiter.give(answer.clone(), None);
            }
        }
    }

    /// The next question; `None` ends the thread.
    fn begin(&self, id: u64) -> Option<Q> {
        let mut state = self.state.lock();
        let now = Clock::system().now();
        let mut waiting = state.questions.iter_mut();
        let next = waiting.find(|asked| asked.begun.is_none());
        let question = next.map(|asked| {
            asked.begun = Some((id, now));
            asked.what.clone()
        });
        if question.is_none() {
            state.running = state.running.saturating_sub(1);
        }
        question
    }

    fn end(&self, id: u64) -> Vec<Giver<Answer<T>>> {
        let mut state = self.state.lock();
        let mut asked = state.questions.iter();
        let place = asked.position(|asked| asked.begun.is_some_and(|(by, _)| by == id));
        let ended = place.map(|place| state.questions.remove(place));
        ended.map(|ended| ended.waiters).unwrap_or_default()
    }
}

impl<Q, T> Drop for Helpers<Q, T> {
    fn drop(&mut self) {
        let (workers, unasked, busy) = {
            let mut state = self.0.state.lock();
            let all = std::mem::take(&mut state.questions).into_iter();
            let (begun, unasked): (Vec<_>, Vec<_>) = all.partition(|asked| asked.begun.is_some());
            let ids = begun.iter().filter_map(|asked| asked.begun);
            let busy: Vec<u64> = ids.map(|(id, _)| id).collect();
            state.questions = begun;
            (std::mem::take(&mut state.workers), unasked, busy)
        };
        drop(unasked);
        for (id, worker) in workers {
            if busy.contains(&id) {
                log::debug!("a {} thread is still at work and ends with it", self.0.name);
                worker.abandon();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::{Receiver, Sender, bounded};

    use super::super::blocking::{Blocking, Until};
    use super::super::wakeup::WakeUp;
    use super::*;
    use crate::worker::StopToken;

    fn call() -> Blocking {
        Blocking::new(&StopToken::never(), &WakeUp::new().unwrap(), Until::NEVER)
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
        let answers = [0, 1].map(|_| helpers.ask("a".to_owned()).unwrap());
        assert_eq!(questions.recv().unwrap(), "a");
        open.send(()).unwrap();
        for answer in answers {
            assert_eq!(answer.take_one(&call()).unwrap().unwrap(), 1);
        }
        assert!(questions.is_empty());

        let (helpers, questions, open) = gated(2, Duration::ZERO);
        let first = helpers.ask("a".to_owned()).unwrap();
        assert_eq!(questions.recv().unwrap(), "a");
        let second = helpers.ask("a".to_owned()).unwrap();
        assert_eq!(questions.recv().unwrap(), "a", "asked again beside it");
        // Both threads are taken: the third question waits, and is one.
        let waiting = [0, 1].map(|_| helpers.ask("a".to_owned()).unwrap());
        assert_eq!(helpers.0.state.lock().questions.len(), 3);
        for _ in 0..3 {
            open.send(()).unwrap();
        }
        for answer in [first, second].into_iter().chain(waiting) {
            assert_eq!(answer.take_one(&call()).unwrap().unwrap(), 1);
        }
    }

    #[test]
    fn waiters_that_went_are_forgotten_while_the_work_hangs() {
        let (helpers, questions, open) = gated(1, Duration::MAX);
        let kept = helpers.ask("a".to_owned()).unwrap();
        questions.recv().unwrap();
        for _ in 0..100 {
            drop(helpers.ask("a".to_owned()).unwrap());
        }
        let waiters = helpers.0.state.lock().questions[0].waiters.len();
        assert!(waiters <= 2, "{waiters}");
        open.send(()).unwrap();
        assert_eq!(kept.take_one(&call()).unwrap().unwrap(), 1);
    }

    #[test]
    fn dropping_them_waits_for_no_work_and_asks_nothing_more() {
        let (helpers, questions, open) = gated(1, Duration::MAX);
        let stuck = helpers.ask("stuck".to_owned()).unwrap();
        questions.recv().unwrap();
        let unasked = helpers.ask("unasked".to_owned()).unwrap();
        drop(helpers);
        assert!(unasked.take_one(&call()).is_err());
        open.send(()).unwrap();
        assert_eq!(stuck.take_one(&call()).unwrap().unwrap(), 5);
        assert!(questions.is_empty());
    }
}
