//! The options of a reflector, each with its unit, default and reason.

use std::convert::Infallible;
use std::time::Duration;

use crossbeam_channel::Receiver;

use crate::clock::Clock;
use crate::failures::FailureLog;
use crate::hooks::Hook;
use crate::object::ResourceVersion;
use crate::policy::{BackoffOptions, FORBIDDEN_GRACE};
use crate::reflector::{FailedAttempt, ReflectorMetric, Waiters};
use crate::setters::setters;

/// The shortest time-out that watches ask for, so that thousands of watches do not reopen all the
/// time (RF-2).
pub(crate) const WATCH_TIMEOUT_MIN: Duration = Duration::from_secs(5 * 60);
/// Two bookmarks, which servers send about once a minute, and ten seconds of slack. If they come
/// less often, the reflector waits for three times their interval.
const IDLE_LIMIT: Duration = Duration::from_secs(130);
/// Options of a [`Reflector`](crate::reflector::Reflector). Start from the default and change what
/// you need.
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
    pub(crate) seed: Option<u64>,
    pub(crate) waiters: Option<Waiters>,
    pub(crate) known_version: Option<ResourceVersion>,
    /// The thread sends no request before each of these has closed, such as at the end of an
    /// earlier run (OC-23).
    pub(crate) start_after: Vec<Receiver<Infallible>>,
    pub(crate) watch_list: bool,
    pub(crate) internal_error_retry: Duration,
    pub(crate) forbidden_grace: Duration,
    pub(crate) metrics: Option<Hook<ReflectorMetric>>,
    pub(crate) on_error: Option<Hook<FailedAttempt>>,
    /// Shared by reflectors whose failures the log reports as one.
    pub(crate) failure_log: Option<FailureLog>,
}

setters! { [] ReflectorOptions;
    /// Sets the clock. Default: the system's.
    clock(clock: Clock);

    /// Sets the shortest time-out that watches ask for; each draws its own from this to twice this.
    /// Default and minimum: 5 minutes.
    watch_timeout_min(timeout: Duration);

    /// Sets how many items a page of a list has. Zero is the default: 500 if the server reads its
    /// storage, and all at once if it answers from its cache.
    page_size(items: u32) = Some(items);

    /// Sets how often the sink delivers all its objects again. Zero is the default: never.
    resync_period(period: Duration) = Some(period);

    /// Sets the silence after which a watch is opened again, once bookmarks are known to come.
    /// Default: 130 seconds.
    ///
    /// If the longest time between two bookmarks is more than a third of this, three times that
    /// time applies instead.
    idle_limit(limit: Duration);

    /// Sets the waits after failures.
    backoff(backoff: BackoffOptions);

    /// Sets the seed of the jitter. Default: each reflector draws its own.
    seed(seed: u64) = Some(seed);

    /// Sets the counter of the callers that wait for the first sync. While a caller waits, lists
    /// are urgent and retries come soon. Default: no caller waits.
    waiters(waiters: Waiters) = Some(waiters);

    /// Sets the version that the content had before this run. Default: none.
    ///
    /// The reflector asks once more, at the most recent version, if the first list is older.
    known_version(version: ResourceVersion) = Some(version);

    /// Sets whether lists come as a stream if the source supports that. Default: false.
    ///
    /// A plain list takes 0.4 to 0.8 of the time of a stream, and 0.3 to 0.7 of the server's CPU
    /// time: the server encodes and sends no event for each object. Since Kubernetes 1.33 it writes
    /// the list piece by piece. Lists of 100,000 objects take half of the memory of streams. Set
    /// this to true for large collections of an older server, which holds a plain list as a whole.
    /// Watches of one object never use streams.
    ///
    /// `tests/cluster/run -- cargo bench --bench list_ways` measures both ways at a real server.
    watch_list(streams: bool);

    /// Sets for how long the reflector only reopens the watch after internal errors of the server.
    /// Default: zero, so that it lists again at once.
    internal_error_retry(window: Duration);

    /// Sets for how long a refusal (403) is retried before waits end with it. Default: 3 seconds.
    forbidden_grace(grace: Duration);

    /// Sets the hook for measurements of lists and watches. Default: none, which costs nothing.
    metrics(metrics: Hook<ReflectorMetric>) = Some(metrics);

    /// Sets the function that receives each failed list or watch: the objects asked for, the cause,
    /// and the attempts so far. Default: none.
    ///
    /// The reflector calls it on its own thread, without a lock, before it waits for the next
    /// attempt. The function must not block, because it holds up the watch. Its panics are logged.
    /// An expired version counts as a failure, although it is normal and a list follows soon. An
    /// answer that only leads to a different request at once does not count, such as a refused
    /// streamed list.
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
    on_error(hook: impl Fn(&FailedAttempt) + Send + Sync + 'static) = Some(Hook::new(hook));
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
            seed: None,
            waiters: None,
            known_version: None,
            start_after: Vec::new(),
            watch_list: false,
            internal_error_retry: Duration::ZERO,
            forbidden_grace: FORBIDDEN_GRACE,
            metrics: None,
            on_error: None,
            failure_log: None,
        }
    }
}
