//! Random sets, deletes, times and waits, against a naive model of the original: subscriptions are
//! channels.

use std::collections::BTreeMap;

use super::*;
use crate::tests::dice::Dice;

const STORIES: u64 = 60;
const STEPS: usize = 150;
const PODS: u64 = 3;
/// Times in the stories: 0 is the zero time. Few, so that equal ones are common.
const TIMES: u64 = 8;
/// More waiters at a time only make it slower.
const WAITERS_MAX: usize = 6;

/// A status that differs from every other.
#[derive(Debug, PartialEq)]
struct Numbered {
    uid: String,
    number: u64,
}

impl CachedStatus for Numbered {
    fn with_id(uid: &str) -> Self {
        Self {
            uid: uid.to_owned(),
            number: 0,
        }
    }
}

/// What a reader sees: the status's number, 0 for the default, and the error's text.
type Seen = (Option<u64>, Option<String>);

#[derive(Clone)]
struct ModelEntry {
    status: Option<u64>,
    error: Option<String>,
    modified: u64,
    observed: u64,
}

struct Subscription {
    min_time: u64,
    tell: crossbeam_channel::Sender<Seen>,
}

/// The original, single-threaded, in the words of its rows.
#[derive(Default)]
struct Model {
    evented: bool,
    pods: BTreeMap<u64, ModelEntry>,
    global: Option<u64>,
    subscribers: BTreeMap<u64, Vec<Subscription>>,
}

impl Model {
    fn get(&self, pod: u64) -> Seen {
        match self.pods.get(&pod) {
            Some(entry) => (entry.status, entry.error.clone()),
            None => (Some(0), None),
        }
    }

    fn is_newer(&self, pod: u64, min_time: u64) -> bool {
        let global_is_newer = self.global.is_some_and(|global| global > min_time);
        match self.pods.get(&pod) {
            None => global_is_newer,
            Some(entry) => {
                global_is_newer || entry.modified > min_time || entry.observed > min_time
            }
        }
    }

    fn get_newer_than(&mut self, pod: u64, min_time: u64) -> Receiver<Seen> {
        let (tell, told) = crossbeam_channel::bounded(1);
        if self.is_newer(pod, min_time) {
            tell.send(self.get(pod)).unwrap();
        } else {
            let subscribers = self.subscribers.entry(pod).or_default();
            subscribers.push(Subscription { min_time, tell });
        }
        told
    }

    fn set(&mut self, pod: u64, entry: ModelEntry) -> bool {
        let stored = self.pods.get(&pod);
        if self.evented && stored.is_some_and(|stored| stored.modified > entry.modified) {
            return false;
        }
        let time = entry.modified;
        self.pods.insert(pod, entry);
        self.notify(pod, time);
        true
    }

    fn update_time(&mut self, time: u64) {
        self.global = Some(time);
        for pod in 0..PODS {
            self.notify(pod, time);
        }
    }

    fn set_observed_time(&mut self, pod: u64, time: u64) {
        if let Some(entry) = self.pods.get_mut(&pod) {
            entry.observed = time;
        }
        self.notify(pod, time);
    }

    fn notify(&mut self, pod: u64, time: u64) {
        let seen = self.get(pod);
        if let Some(subscribers) = self.subscribers.get_mut(&pod) {
            subscribers.retain(|subscription| {
                let is_told = time >= subscription.min_time;
                if is_told {
                    // A waiter that gave up no longer listens.
                    let _gone = subscription.tell.send(seen.clone());
                }
                !is_told
            });
        }
    }
}

/// One question, asked of both sides.
struct Question {
    pod: u64,
    min_time: u64,
    deadline: Option<std::time::Instant>,
    ours: Asking<Numbered>,
    theirs: Receiver<Seen>,
}

struct Story {
    dice: Dice,
    seed: u64,
    step: usize,
    fake: FakeClock,
    clock: Clock,
    start: Timestamp,
    cache: PodStatusCache<Numbered>,
    model: Model,
    numbers: u64,
    open: Vec<Question>,
    answers: u64,
    timeouts: u64,
}

impl Story {
    fn new((mut dice, seed): (Dice, u64)) -> Self {
        let fake = FakeClock::new();
        let clock = Clock::from(fake.clone());
        let evented = dice.roll(3) == 0;
        Self {
            dice,
            seed,
            step: 0,
            start: Timestamp::now(&clock),
            cache: if evented {
                PodStatusCache::evented(clock.clone())
            } else {
                PodStatusCache::new(clock.clone())
            },
            fake,
            clock,
            model: Model {
                evented,
                ..Model::default()
            },
            numbers: 0,
            open: Vec::new(),
            answers: 0,
            timeouts: 0,
        }
    }

    fn told(&self) -> String {
        format!("seed {}, step {}", self.seed, self.step)
    }

    fn time(&self, time: u64) -> Timestamp {
        match time {
            0 => Timestamp::ZERO,
            seconds => later(self.start, Duration::from_secs(seconds)),
        }
    }

    fn step(&mut self) {
        let (pod, time) = (self.dice.roll(PODS), self.dice.roll(TIMES));
        let uid = format!("uid-{pod}");
        match self.dice.roll(10) {
            0..=2 => self.set(pod, &uid, time),
            3 => {
                self.cache.delete(&uid);
                self.model.pods.remove(&pod);
            }
            4 => {
                self.cache.update_time(self.time(time));
                self.model.update_time(time);
            }
            5 => {
                self.cache.set_observed_time(&uid, self.time(time));
                self.model.set_observed_time(pod, time);
            }
            6 => self
                .fake
                .advance(Duration::from_millis(self.dice.roll(400))),
            7 if self.dice.roll(4) == 0 => self.stop_one(),
            _ if self.open.len() < WAITERS_MAX => self.ask(pod, &uid, time),
            _ => {}
        }
        self.collect();
        self.compare();
    }

    fn set(&mut self, pod: u64, uid: &str, time: u64) {
        self.numbers += 1;
        let number = self.numbers;
        let has_status = self.dice.roll(4) != 0;
        let error = (self.dice.roll(3) == 0).then(|| format!("failure {number}"));
        let status = has_status.then(|| {
            Arc::new(Numbered {
                uid: uid.to_owned(),
                number,
            })
        });
        let ours = self
            .cache
            .set(uid, status, error.as_deref().map(failure), self.time(time));
        let theirs = ModelEntry {
            status: has_status.then_some(number),
            error,
            modified: time,
            observed: time,
        };
        assert_eq!(ours, self.model.set(pod, theirs), "{}", self.told());
    }

    fn ask(&mut self, pod: u64, uid: &str, min_time: u64) {
        let deadline = match self.dice.roll(2) {
            0 => Deadline::NEVER,
            _ => self
                .clock
                .after(Duration::from_millis(self.dice.roll(1_000))),
        };
        let min = self.time(min_time);
        let question = Question {
            pod,
            min_time,
            deadline: deadline.instant(),
            ours: Asking::new(&self.cache, uid, min, deadline),
            theirs: self.model.get_newer_than(pod, min_time),
        };
        let passed = deadline.has_passed(self.fake.now());
        if question.theirs.is_empty() && !passed {
            self.fake.wait_for_parked(self.open.len() + 1);
        }
        self.open.push(question);
    }

    fn stop_one(&mut self) {
        if let Some(question) = self.open.pop() {
            question.ours.stop();
            assert!(question.ours.error().is_stopped(), "{}", self.told());
        }
    }

    /// Checks that the cache answered every question that the model answered, equally, and that the
    /// others time out when due.
    fn collect(&mut self) {
        let now = self.fake.now();
        let open = std::mem::take(&mut self.open);
        for question in open {
            let told = self.told();
            if let Ok(theirs) = question.theirs.try_recv() {
                let ours = question.ours.end();
                assert_eq!(seen(question.pod, &ours.unwrap()), theirs, "{told}");
                self.answers += 1;
            } else if question.deadline.is_some_and(|deadline| deadline <= now) {
                let error = question.ours.error();
                assert_eq!(error.kind(), ErrorKind::Timeout, "{told}");
                self.timeouts += 1;
            } else {
                self.open.push(question);
            }
        }
    }

    fn compare(&self) {
        let told = self.told();
        for pod in 0..PODS {
            let reading = self.cache.get(&format!("uid-{pod}"));
            assert_eq!(seen(pod, &reading), self.model.get(pod), "{told}");
            let entry = self.model.pods.get(&pod);
            let modified = entry.map(|entry| self.time(entry.modified));
            let observed = entry.map(|entry| self.time(entry.observed));
            assert_eq!(reading.modified_time(), modified, "{told}");
            assert_eq!(reading.observed_time(), observed, "{told}");
        }
        assert_eq!(self.cache.get_all().len(), self.model.pods.len(), "{told}");
        let global = self.model.global.map(|global| self.time(global));
        assert_eq!(self.cache.global_time(), global, "{told}");
        let mut theirs: Vec<_> = self
            .open
            .iter()
            .map(|question| {
                (
                    format!("uid-{}", question.pod),
                    self.time(question.min_time),
                )
            })
            .collect();
        theirs.sort();
        let waiting = self.cache.waiting();
        let mut ours: Vec<_> = waiting
            .iter()
            .map(|waiting| (waiting.uid.to_string(), waiting.min_time))
            .collect();
        ours.sort();
        assert_eq!(ours, theirs, "{told}");
        let (_, waiters) = self.cache.table.lock().waiters();
        assert_eq!(waiters, theirs.len(), "{told}: nobody is left behind");
    }
}

fn seen(pod: u64, reading: &PodReading<Numbered>) -> Seen {
    if let Some(status) = reading.status() {
        assert_eq!(status.uid, format!("uid-{pod}"));
    }
    let error = reading.error().map(ToString::to_string);
    (reading.status().map(|status| status.number), error)
}

#[test]
fn pc_1_to_14_random_stories_end_as_in_the_naive_model() {
    let (mut answers, mut timeouts, mut stopped) = (0, 0, 0);
    for dice in Dice::histories(STORIES) {
        let mut story = Story::new(dice);
        for step in 0..STEPS {
            story.step = step;
            story.step();
        }
        story.cache.close();
        for question in &story.open {
            assert!(question.ours.error().is_stopped(), "{}", story.told());
            stopped += 1;
        }
        assert_eq!(
            story.cache.table.lock().waiters(),
            (0, 0),
            "{}",
            story.told()
        );
        answers += story.answers;
        timeouts += story.timeouts;
    }
    assert!(answers > STORIES && timeouts > STORIES / 2 && stopped > 0);
}
