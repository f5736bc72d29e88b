//! What can be set about a reflector: each field with its unit, default and reason.

use std::convert::Infallible;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

use crossbeam_channel::Receiver;

use crate::clock::Clock;
use crate::hooks::Hook;
use crate::object::ResourceVersion;
use crate::reflector::{FailedAttempt, ReflectorMetric, Waiters};

/// Shortest watch time-out asked of the server, so that thousands of watches do not reopen all the
/// time (RF-2).
pub(crate) const WATCH_TIMEOUT_MIN: Duration = Duration::from_mins(5);
/// Two bookmarks, which servers send about once a minute, and ten seconds of slack. Where they come
/// more seldom, the reflector waits for three times as long as they do.
const IDLE_LIMIT: Duration = Duration::from_secs(130);
/// How long the node authorizer may lag behind the binding of a pod (R4): who asks on its own waits
/// as long to believe it.
pub(crate) const FORBIDDEN_GRACE: Duration = Duration::from_secs(3);
/// The longest wait a server can ask for, whoever asks it: beyond it a wrong header would silence a
/// cache for hours.
pub(crate) const RETRY_AFTER_MAX: Duration = Duration::from_mins(5);

/// Options of a [`Reflector`](crate::reflector::Reflector); start from the default and change
/// fields.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReflectorOptions {
    /// Where time comes from. Default: the system.
    pub clock: Clock,
    /// Watches ask for a time-out drawn from this to twice this. Default and least: 5 minutes.
    pub watch_timeout_min: Duration,
    /// Items per page of a list. Default `None`: 500 where the server does not answer out of its
    /// cache, else all at once.
    pub page_size: Option<u32>,
    /// How often the sink is asked to deliver again what it knows. Default `None`: never.
    pub resync_period: Option<Duration>,
    /// Silence after which a watch is reopened, once bookmarks are known to come. Default 130
    /// s. Where the longest time between two bookmarks is more than a third of this, three times
    /// that time takes its place.
    pub idle_limit: Duration,
    /// The waits after failures.
    pub backoff: BackoffOptions,
    /// Seed of the jitter. Default: random.
    pub seed: u64,
    /// Who waits for the first sync. Default `None`: nobody.
    pub waiters: Option<Waiters>,
    /// What a run before this one knew: a first list older than it is asked for once more, at the
    /// most recent version. Default `None`.
    pub start_floor: Option<ResourceVersion>,
    /// The thread asks for nothing before each of these has closed, such as at the end of a run
    /// before this one (OC-23).
    pub(crate) start_after: Vec<Receiver<Infallible>>,
    /// Lists as a stream where the source supports it. Default true; by-name watches switch it off.
    pub watch_list: bool,
    /// How long internal errors on a watch only reopen it. Default zero: they relist.
    pub internal_error_retry: Duration,
    /// How long a refusal (403) is retried before it is an answer. Default 3 s.
    pub forbidden_grace: Duration,
    /// The hook that is told of lists and watches, for metrics. Default `None`, which costs
    /// nothing.
    pub metrics: Option<Hook<ReflectorMetric>>,
    /// The function that is told of failed lists and watches. Default `None`; set it with
    /// [`on_error`](Self::on_error).
    pub on_error: Option<Hook<FailedAttempt>>,
}

impl ReflectorOptions {
    /// The same, with a function that is told of each failed list or watch: what was asked for, the
    /// cause, and the attempts so far.
    ///
    /// The reflector calls it on its own thread, under no lock, before it waits for the next
    /// attempt. The function must not block: the watch waits for it. A panic of it is logged. An
    /// expired version is told, too: it is part of a normal life, and a list follows soon. Not told
    /// are answers after which the reflector asks otherwise at once, such as a refused streamed
    /// list.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(feature = "testing")] {
    /// use std::sync::Arc;
    ///
    /// use k8s_openapi::api::core::v1::Secret;
    /// use kubecache::object::Status;
    /// use kubecache::reflector::ReflectorOptions;
    /// use kubecache::store::{Indexers, Store};
    /// use kubecache::testing::{FakeSource, RequestKind};
    /// use kubecache::{Error, ErrorKind};
    ///
    /// let source = FakeSource::<Secret>::new();
    /// let forbidden = Status::new(403, "secrets is forbidden");
    /// source.fail_all(RequestKind::List, Error::from_status(forbidden));
    ///
    /// let (send, failures) = std::sync::mpsc::channel();
    /// let options = ReflectorOptions::default().on_error(move |failed| {
    ///     eprintln!("{}: attempt {}: {}", failed.what, failed.attempts, failed.error);
    ///     drop(send.send(failed.error.clone()));
    /// });
    /// let (_store, _reflector) =
    ///     Store::spawn("secrets", Arc::new(source), Indexers::new(), options)?;
    /// assert_eq!(failures.recv().map(|error| error.kind()), Ok(ErrorKind::Forbidden));
    /// # }
    /// # Ok::<(), kubecache::Error>(())
    /// ```
    #[must_use]
    #[doc(alias = "WatchErrorHandler")]
    pub fn on_error(mut self, hook: impl Fn(&FailedAttempt) + Send + Sync + 'static) -> Self {
        self.on_error = Some(Hook::new(hook));
        self
    }
}

/// The waits between failed passes; each is drawn from its base up to base × (1 + jitter).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct BackoffOptions {
    /// The first base. Default 800 ms.
    pub initial: Duration,
    /// What the base is multiplied by after each wait; 1 or less does not grow. Default 2.
    pub factor: f64,
    /// The largest base. Default 30 s.
    pub cap: Duration,
    /// The share of the base that chance adds. Default 1: a wait is in [base, 2 × base).
    pub jitter: f64,
    /// Time since a watch was opened after which the sequence starts again; zero keeps it at its
    /// start. Default 2 minutes. A proof that the server lives starts it again sooner: an event, a
    /// watch that lived five seconds, an expired position, or an answer other than 5xx and 429.
    pub reset_after: Duration,
}

impl Default for ReflectorOptions {
    fn default() -> Self {
        Self {
            clock: Clock::system(),
            watch_timeout_min: WATCH_TIMEOUT_MIN,
            page_size: None,
            resync_period: None,
            idle_limit: IDLE_LIMIT,
            backoff: BackoffOptions::default(),
            seed: RandomState::new().build_hasher().finish(),
            waiters: None,
            start_floor: None,
            start_after: Vec::new(),
            watch_list: true,
            internal_error_retry: Duration::ZERO,
            forbidden_grace: FORBIDDEN_GRACE,
            metrics: None,
            on_error: None,
        }
    }
}

impl Default for BackoffOptions {
    fn default() -> Self {
        Self {
            initial: Duration::from_millis(800),
            factor: 2.0,
            cap: Duration::from_secs(30),
            jitter: 1.0,
            reset_after: Duration::from_mins(2),
        }
    }
}
