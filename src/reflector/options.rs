//! The options of a reflector, each with its unit, default and reason.

use std::convert::Infallible;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

use crossbeam_channel::Receiver;

use crate::clock::Clock;
use crate::failures::FailureLog;
use crate::hooks::Hook;
use crate::object::ResourceVersion;
use crate::policy::{BackoffOptions, FORBIDDEN_GRACE};
use crate::reflector::{FailedAttempt, ReflectorMetric, Waiters};

/// Shortest watch time-out asked of the server, so that thousands of watches do not reopen all the
/// time (RF-2).
pub(crate) const WATCH_TIMEOUT_MIN: Duration = Duration::from_secs(5 * 60);
/// Two bookmarks, which servers send about once a minute, and ten seconds of slack. Where they come
/// more seldom, the reflector waits for three times as long as they do.
const IDLE_LIMIT: Duration = Duration::from_secs(130);
/// Options of a [`Reflector`](crate::reflector::Reflector); start from the default and set what
/// differs.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use kubecache::reflector::{BackoffOptions, ReflectorOptions};
///
/// let options = ReflectorOptions::default()
///     .page_size(100)
///     .idle_limit(Duration::from_secs(3 * 60))
///     .backoff(BackoffOptions::default().cap(Duration::from_secs(10)));
/// # drop(options);
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing before a reflector is started with them"]
pub struct ReflectorOptions {
    pub(crate) clock: Clock,
    pub(crate) watch_timeout_min: Duration,
    pub(crate) page_size: Option<u32>,
    pub(crate) resync_period: Option<Duration>,
    pub(crate) idle_limit: Duration,
    pub(crate) backoff: BackoffOptions,
    pub(crate) seed: u64,
    pub(crate) waiters: Option<Waiters>,
    pub(crate) known_version: Option<ResourceVersion>,
    /// The thread asks for nothing before each of these has closed, such as at the end of a run
    /// before this one (OC-23).
    pub(crate) start_after: Vec<Receiver<Infallible>>,
    pub(crate) watch_list: bool,
    pub(crate) internal_error_retry: Duration,
    pub(crate) forbidden_grace: Duration,
    pub(crate) metrics: Option<Hook<ReflectorMetric>>,
    pub(crate) on_error: Option<Hook<FailedAttempt>>,
    /// Shared by reflectors whose failures the log is to be told as one.
    pub(crate) failure_log: Option<FailureLog>,
}

impl ReflectorOptions {
    /// Sets the clock. Default: the system's.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the shortest time-out that watches ask for; each draws its own from this to twice this.
    /// Default and least: 5 minutes.
    pub fn watch_timeout_min(mut self, timeout: Duration) -> Self {
        self.watch_timeout_min = timeout;
        self
    }

    /// Sets how many items a page of a list has. Zero is the default: 500 where the server reads
    /// its storage, and all at once where it answers from its cache.
    pub fn page_size(mut self, items: u32) -> Self {
        self.page_size = Some(items);
        self
    }

    /// Sets how often the sink delivers all its objects again. Zero is the default: never.
    pub fn resync_period(mut self, period: Duration) -> Self {
        self.resync_period = Some(period);
        self
    }

    /// Sets the silence after which a watch is opened again, once bookmarks are known to come.
    /// Default: 130 seconds.
    ///
    /// Where the longest time between two bookmarks is more than a third of this, three times that
    /// time takes its place.
    pub fn idle_limit(mut self, limit: Duration) -> Self {
        self.idle_limit = limit;
        self
    }

    /// Sets the waits after failures.
    pub fn backoff(mut self, backoff: BackoffOptions) -> Self {
        self.backoff = backoff;
        self
    }

    /// Sets the seed of the jitter. Default: random.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the counter of the callers that wait for the first sync. While a caller waits, lists
    /// are urgent and retries come soon. Default: no caller waits.
    pub fn waiters(mut self, waiters: Waiters) -> Self {
        self.waiters = Some(waiters);
        self
    }

    /// Sets the version that the content had before this run. Default: none.
    ///
    /// The reflector asks once more, at the most recent version, if the first list is older.
    pub fn known_version(mut self, version: ResourceVersion) -> Self {
        self.known_version = Some(version);
        self
    }

    /// Sets whether lists come as a stream where the source supports it. Default: true.
    ///
    /// Watches of one object never use streams.
    pub fn watch_list(mut self, streams: bool) -> Self {
        self.watch_list = streams;
        self
    }

    /// Sets for how long the reflector only opens the watch again after internal errors of the
    /// server. Default: zero, so that it lists again at once.
    pub fn internal_error_retry(mut self, window: Duration) -> Self {
        self.internal_error_retry = window;
        self
    }

    /// Sets for how long a refusal (403) is retried before waits end with it. Default: 3 seconds.
    pub fn forbidden_grace(mut self, grace: Duration) -> Self {
        self.forbidden_grace = grace;
        self
    }

    /// Sets the hook for measurements of lists and watches. Default: none, which costs nothing.
    pub fn metrics(mut self, metrics: Hook<ReflectorMetric>) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// Sets the function that receives each failed list or watch: the objects asked for, the cause,
    /// and the attempts so far. Default: none.
    ///
    /// The reflector calls it on its own thread, under no lock, before it waits for the next
    /// attempt. The function must not block: the watch waits for it. A panic of it is logged. An
    /// expired version counts as a failure, although it is normal and a list follows soon. An
    /// answer after which the reflector sends a different request at once does not count, such as a
    /// refused streamed list.
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
    #[doc(alias = "WatchErrorHandler")]
    pub fn on_error(mut self, hook: impl Fn(&FailedAttempt) + Send + Sync + 'static) -> Self {
        self.on_error = Some(Hook::new(hook));
        self
    }
}

#[cfg(test)]
impl ReflectorOptions {
    /// Options on `clock` with which every wait is exact.
    pub(crate) fn exact(clock: Clock) -> Self {
        Self::default()
            .clock(clock)
            .seed(1)
            .backoff(BackoffOptions::default().jitter(0.0))
    }
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
            known_version: None,
            start_after: Vec::new(),
            watch_list: true,
            internal_error_retry: Duration::ZERO,
            forbidden_grace: FORBIDDEN_GRACE,
            metrics: None,
            on_error: None,
            failure_log: None,
        }
    }
}
