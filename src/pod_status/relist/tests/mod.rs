//! The relist loop over a runtime that answers as each test says, call by call; no test sleeps.

mod behaviour;
mod ends;
mod health;
mod random;
mod records;
mod requests;
mod workers;

use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, select, unbounded};

use super::{Relist, RelistOptions, RelistRequests, Runtime, RuntimeError, RuntimePod};
use crate::clock::{Clock, Deadline, FakeClock};
use crate::pod_status::{ContainerState, PodStatus, PodStatusCache, SandboxState, Timestamp};
use crate::worker::{StopToken, Worker};

/// How long a test waits: far longer than needed, so that a loop that hangs fails the test by name.
const PATIENCE: Duration = Duration::from_secs(5 * 60);
/// The default pause between two relists.
const PERIOD: Duration = Duration::from_secs(1);

/// A pod from words: `a c1=running s1=ready`.
fn pod(words: &str) -> RuntimePod {
    let mut words = words.split_whitespace();
    let uid = words.next().unwrap();
    let mut pod = RuntimePod::new(uid, "shop", uid);
    for word in words {
        let (id, state) = word.split_once('=').unwrap();
        pod = match state {
            "created" => pod.container(id, ContainerState::Created),
            "running" => pod.container(id, ContainerState::Running),
            "exited" => pod.container(id, ContainerState::Exited),
            "unknown" => pod.container(id, ContainerState::Unknown),
            "ready" => pod.sandbox(id, SandboxState::Ready),
            "notready" => pod.sandbox(id, SandboxState::NotReady),
            other => panic!("unknown state {other}"),
        };
    }
    pod
}

/// A list from words: pods are divided by commas.
fn list(words: &str) -> Vec<RuntimePod> {
    let pods = words.split(',').map(str::trim);
    pods.filter(|words| !words.is_empty()).map(pod).collect()
}

/// A status with only a uid and an address.
fn status(uid: &str, ip: &str) -> PodStatus {
    let mut status = PodStatus {
        id: uid.to_owned(),
        ..PodStatus::default()
    };
    status.ips.extend((!ip.is_empty()).then(|| ip.to_owned()));
    status
}

/// A call of the runtime by the loop.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    List,
    Inspect(String),
}

/// The outcome of a call of the runtime.
enum Answer {
    List(Vec<RuntimePod>),
    Inspect(PodStatus),
    Fail(&'static str),
    Panic(&'static str),
}

/// A runtime that reports each call and waits for its answer, or for the stop unless it is
/// stubborn.
struct Played {
    asked: Sender<Asked>,
    answers: Receiver<Answer>,
    stubborn: bool,
}

impl Played {
    fn wait_for_answer(&self, asked: Asked, stop: &StopToken) -> Result<Answer, RuntimeError> {
        self.asked.send(asked)?;
        let answer = if self.stubborn {
            self.answers.recv()?
        } else {
            select! {
                recv(self.answers) -> answer => answer?,
                recv(stop.channel()) -> closed => return Err(closed.unwrap_err().into()),
            }
        };
        match answer {
            Answer::Fail(why) => Err(why.into()),
            Answer::Panic(why) => std::panic::panic_any(why),
            Answer::List(_) | Answer::Inspect(_) => Ok(answer),
        }
    }
}

impl Runtime for Played {
    type Status = PodStatus;

    fn list_pods(&mut self, stop: &StopToken) -> Result<Vec<RuntimePod>, RuntimeError> {
        match self.wait_for_answer(Asked::List, stop)? {
            Answer::List(pods) => Ok(pods),
            Answer::Inspect(_) | Answer::Fail(_) | Answer::Panic(_) => {
                panic!("the test answers a list with something else")
            }
        }
    }

    fn inspect_pod(
        &mut self,
        pod: &RuntimePod,
        stop: &StopToken,
    ) -> Result<PodStatus, RuntimeError> {
        match self.wait_for_answer(Asked::Inspect(pod.uid().to_owned()), stop)? {
            Answer::Inspect(status) => Ok(status),
            Answer::List(_) | Answer::Fail(_) | Answer::Panic(_) => {
                panic!("the test answers an inspection with something else")
            }
        }
    }
}

/// Receives a value that another thread sends.
fn comes<T>(told: &Receiver<T>, what: &str) -> T {
    let comes = told.recv_timeout(PATIENCE);
    comes.unwrap_or_else(|error| panic!("waited for {what}: {error}"))
}

/// Runs a function that may block, on its own thread. A test that fails here leaves the thread
/// behind, and so does not block itself.
fn within<T: Send + 'static>(what: &str, act: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = bounded(1);
    let worker = Worker::spawn("t-within", move |_stop| drop(tell.send(act())));
    worker.unwrap().abandon();
    comes(&told, what)
}

/// A thread that waits on the cache. However the test ends, the thread does: the cache is closed
/// before it is joined.
struct WaitingThread<T> {
    cache: PodStatusCache<PodStatus>,
    told: Receiver<T>,
    worker: Option<Worker>,
}

impl<T: Send + 'static> WaitingThread<T> {
    fn spawn(
        cache: &PodStatusCache<PodStatus>,
        act: impl FnOnce(&PodStatusCache<PodStatus>, &Sender<T>) + Send + 'static,
    ) -> Self {
        let (tell, told) = bounded(0);
        let waits_on = cache.clone();
        let worker = Worker::spawn("t-waiting", move |_stop| act(&waits_on, &tell));
        Self {
            cache: cache.clone(),
            told,
            worker: Some(worker.unwrap()),
        }
    }

    fn comes(&self, what: &str) -> T {
        comes(&self.told, what)
    }

    /// Joins the thread, which an earlier action of the test ends.
    fn join(mut self) {
        let (_, closed) = bounded(0);
        drop(std::mem::replace(&mut self.told, closed));
        let worker = self.worker.take().unwrap();
        within("the end of who waits on the cache", move || worker.join()).unwrap();
    }
}

impl<T> Drop for WaitingThread<T> {
    fn drop(&mut self) {
        self.cache.close();
        let (_, closed) = bounded(0);
        self.told = closed;
    }
}

/// A running loop whose runtime, clock and cache the test controls. Its drop releases the runtime
/// first.
struct Stage {
    answers: Sender<Answer>,
    asked: Receiver<Asked>,
    relist: Relist,
    cache: PodStatusCache<PodStatus>,
    fake: FakeClock,
}

impl Stage {
    fn new() -> Self {
        Self::with(RelistOptions::default(), false)
    }

    fn stubborn() -> Self {
        Self::with(RelistOptions::default(), true)
    }

    fn with(options: RelistOptions, stubborn: bool) -> Self {
        let fake = FakeClock::new();
        let cache = PodStatusCache::new(Clock::from(fake.clone()));
        Self::over(cache, fake, options, stubborn)
    }

    fn over(
        cache: PodStatusCache<PodStatus>,
        fake: FakeClock,
        options: RelistOptions,
        stubborn: bool,
    ) -> Self {
        let (tell, asked) = unbounded();
        let (answers, take) = bounded(0);
        let runtime = Played {
            asked: tell,
            answers: take,
            stubborn,
        };
        let relist = Relist::spawn(runtime, cache.clone(), options).unwrap();
        Self {
            answers,
            asked,
            relist,
            cache,
            fake,
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from(self.fake.now())
    }

    /// Waits until the loop makes this call.
    fn expect(&self, asked: &Asked) {
        assert_eq!(self.asked.recv_timeout(PATIENCE).as_ref(), Ok(asked));
    }

    fn answer(&self, asked: &Asked, answer: Answer) {
        self.expect(asked);
        self.give(answer);
    }

    /// Answers the loop's call.
    fn give(&self, answer: Answer) {
        let given = self.answers.send_timeout(answer, PATIENCE);
        assert!(given.is_ok(), "waited for the loop to take the answer");
    }

    /// Stops the loop and waits for its end. The runtime is gone then, and got no further call.
    fn shut_down(self) {
        let Self { relist, asked, .. } = self;
        within("the end of the loop", || relist.shutdown(Deadline::NEVER)).unwrap();
        assert_eq!(
            asked.recv_timeout(PATIENCE),
            Err(RecvTimeoutError::Disconnected)
        );
    }

    /// Answers the next list.
    fn list(&self, words: &str) {
        self.answer(&Asked::List, Answer::List(list(words)));
    }

    fn inspect(&self, uid: &str, answer: Answer) {
        self.answer(&Asked::Inspect(uid.to_owned()), answer);
    }

    /// Answers the next inspection, which is of this pod, with a bare status.
    fn found(&self, uid: &str) {
        self.inspect(uid, Answer::Inspect(status(uid, "")));
    }

    /// Waits for the end of the relist.
    fn pausing(&self) {
        self.rests_for(PERIOD);
        assert!(self.asked.is_empty(), "it rests and asks for nothing");
    }

    fn rests_for(&self, pause: Duration) {
        let fake = self.fake.clone();
        within("the pause between two relists", move || {
            fake.wait_for_timer(pause);
        });
    }

    /// Waits for the end of the relist and ends the pause.
    fn next(&self) {
        self.pausing();
        self.fake.advance(PERIOD);
    }
}
