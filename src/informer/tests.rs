//! Shared by the tests of this room: a stage on a clock that the test moves, the notation of
//! notifications (the manual's page about contributing describes it), and threads that fail instead
//! of hanging.

use std::time::Duration;

use crossbeam_channel::{Receiver, after, select, unbounded};
use k8s_openapi::api::core::v1::ConfigMap;

use crate::clock::{Clock, Deadline, FakeClock};
use crate::informer::Notification;
use crate::object::{Object as _, StoredObject};
#[cfg(feature = "testing")]
use crate::reflector::ReflectorOptions;
#[cfg(feature = "testing")]
use crate::tests::until::until;
use crate::worker::Worker;

pub(super) type Told = Notification<ConfigMap>;

/// The subject of a test, on a clock that only the test moves.
pub(super) struct Stage<S> {
    pub(super) fake: FakeClock,
    pub(super) clock: Clock,
    /// The source of the informer's or the handlers' objects.
    pub(super) source: S,
    _patience: Patience,
}

impl<S> Stage<S> {
    pub(super) fn of(source: impl FnOnce(&Clock) -> S) -> Self {
        let fake = FakeClock::new();
        let clock = Clock::from(fake.clone());
        Self {
            source: source(&clock),
            fake,
            clock,
            _patience: Patience::new(),
        }
    }

    pub(super) fn now(&self) -> Deadline {
        self.clock.after(Duration::ZERO)
    }
}

#[cfg(feature = "testing")]
impl<S> Stage<S> {
    /// Options of a reflector that pauses exactly as long as its backoff says.
    pub(super) fn reflector(&self) -> ReflectorOptions {
        let mut reflector = ReflectorOptions {
            clock: self.clock.clone(),
            seed: Some(1),
            ..ReflectorOptions::default()
        };
        reflector.backoff.jitter = 0.0;
        reflector
    }

    /// Advances the clock from timer to timer until `holds`.
    #[track_caller]
    pub(super) fn pass_until(&self, holds: impl Fn() -> bool) {
        until(|| {
            if holds() {
                return true;
            }
            let ahead = self.fake.wait_for_next_timer();
            if holds() {
                return true;
            }
            self.fake.advance(ahead);
            false
        });
    }
}

pub(super) fn word(object: &StoredObject<ConfigMap>) -> String {
    format!("{}{}", object.key(), object.resource_version())
}

pub(super) fn written(notification: &Told) -> String {
    match notification {
        Notification::Added {
            object,
            is_in_initial_list: true,
        } => format!("*{}", word(object)),
        Notification::Added { object, .. } => format!("+{}", word(object)),
        Notification::Updated { old, new } => {
            format!("{}>{}", word(old), new.resource_version())
        }
        Notification::Deleted(deleted) => {
            let mark = if deleted.final_state_known { '-' } else { '?' };
            format!("{mark}{}", word(&deleted.last_known))
        }
    }
}

/// The next notifications, as they come.
pub(super) fn next(told: &Receiver<Told>, count: usize) -> Vec<String> {
    let told = told.iter().take(count);
    told.map(|notification| written(&notification)).collect()
}

/// The time limit of a test on a busy machine; one that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(5 * 60);

/// A thread of a test, joined at its end. After a failure it may wait for ever, and is left behind.
pub(super) struct Apart(Option<Worker>);

impl Drop for Apart {
    fn drop(&mut self) {
        let worker = self.0.take().unwrap();
        if std::thread::panicking() {
            worker.abandon();
        }
    }
}

/// Runs a function on its own thread; the receiver gets its result.
pub(super) fn apart<T: Send + 'static>(
    act: impl FnOnce() -> T + Send + 'static,
) -> (Apart, Receiver<T>) {
    let (send, receiver) = unbounded();
    let worker = Worker::spawn("t-apart", move |_| drop(send.send(act()))).unwrap();
    (Apart(Some(worker)), receiver)
}

/// Bounds all waits of a test: when it is held for too long, it prints the test's name and ends the
/// process.
///
/// The waits themselves have no deadline, or one on a fake clock, which stands still when a test
/// hangs.
struct Patience {
    _thread: Worker,
}

impl Patience {
    fn new() -> Self {
        let test = std::thread::current().name().unwrap_or("?").to_owned();
        let thread = Worker::spawn("t-patience", move |stop| {
            select! {
                recv(stop.channel()) -> _ => {}
                recv(after(LIMIT)) -> _ => {
                    eprintln!("{test} hangs: it has not ended after {LIMIT:?}");
                    std::process::abort();
                }
            }
        });
        Self {
            _thread: thread.unwrap(),
        }
    }
}

/// The stack size of a modelled thread, in bytes: objects on it need more than the checker's
/// default.
#[cfg(shuttle)]
const STACK_BYTES: usize = 512 * 1024;

/// Runs a model under this number of schedules.
#[cfg(shuttle)]
pub(super) fn check(schedules: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut config = shuttle::Config::new();
    config.stack_size = STACK_BYTES;
    let scheduler = shuttle::scheduler::RandomScheduler::new(schedules);
    shuttle::Runner::new(scheduler, config).run(model);
}
