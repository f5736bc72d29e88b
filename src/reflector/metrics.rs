//! What a reflector tells those who measure it: hooks that do nothing by default, and readings for whoever asks.

use std::fmt;
use std::sync::Weak;
use std::time::{Duration, Instant};

use crate::clock::Clock;
use crate::error::Error;
use crate::guard::guard;
use crate::reflector::core::VERY_SHORT;
use crate::reflector::guarded::logged;
use crate::reflector::{Phase, ReflectorStatus};
use crate::sync::{Arc, Mutex};

/// Is told what a reflector does, as client-go's reflector metrics were (RF-51).
///
/// Implement the methods you want to count; each does nothing by default. Give one to
/// [`ReflectorOptions::metrics`](crate::reflector::ReflectorOptions::metrics): several reflectors may share one. The feature
/// `metrics` has one that is ready, for Prometheus.
///
/// All methods but [`reflector_started`](Self::reflector_started) are called on the reflector's own thread, under no lock. They
/// must not block: the watch waits for them. A panic of theirs is logged; one of
/// `reflector_started` fails the reflector's start
/// (`Panicked`). They are never given an object or its name.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "testing")] {
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use std::time::Duration;
///
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kubecache::clock::Clock;
/// use kubecache::reflector::{ReflectorMetrics, ReflectorOptions};
/// use kubecache::store::{Indexers, Store};
/// use kubecache::testing::FakeSource;
///
/// #[derive(Debug, Default)]
/// struct Lists(AtomicU64);
///
/// impl ReflectorMetrics for Lists {
///     fn listed(&self, items: usize, took: Duration) {
///         println!("{items} items in {took:?}");
///         self.0.fetch_add(1, Ordering::Relaxed);
///     }
/// }
///
/// let lists = Arc::new(Lists::default());
/// let mut options = ReflectorOptions::default();
/// options.metrics = Some(lists.clone());
/// let source = Arc::new(FakeSource::<ConfigMap>::new());
/// let (store, reflector) = Store::spawn("settings", source, Indexers::new(), options)?;
/// store.wait_until_synced(Clock::system().after(Duration::from_secs(10)))?;
/// reflector.join().expect("it did not panic");
/// assert_eq!(lists.0.load(Ordering::Relaxed), 1);
/// # }
/// # Ok::<(), kubecache::Error>(())
/// ```
#[doc(alias = "MetricsProvider")]
pub trait ReflectorMetrics: fmt::Debug + Send + Sync {
    /// A reflector starts; `reading` tells of its state at any later time. Called on the thread that starts it, before its own.
    fn reflector_started(&self, _reading: ReflectorReading) {}

    /// A list is asked for: once for all its pages, streamed lists included.
    fn list_started(&self) {}

    /// A whole list has come and is decoded: so many items, in so long since it was asked for. Not called for one that failed.
    fn listed(&self, _items: usize, _took: Duration) {}

    /// A watch is asked for; that of a streamed list included.
    fn watch_started(&self) {}

    /// An open watch is over, for whatever reason: so many events and bookmarks came, and so long it was open. What came as
    /// part of a streamed list is not counted here.
    fn watch_ended(&self, _events: usize, _lived: Duration) {}

    /// The server ended a watch within a second, without an event (RF-33). Comes before the watch's end.
    fn short_watch(&self) {}

    /// An item of a list, or an event, was set aside because it does not decode (B12).
    fn undecodable(&self) {}
}

/// Tells metrics of a start. Their panic is an error like any other that keeps something from starting: an unwinding that
/// passed by would leave the owner halfway, and its end would wait for a start that never comes.
pub(crate) fn announce(name: &str, tell: impl FnOnce()) -> Result<(), Error> {
    guard(format_args!("the metrics of {name}"), tell)
}

/// Looks at one reflector's state, for readings that cost nothing between two looks. Does not keep the reflector alive.
#[derive(Clone, Debug)]
pub struct ReflectorReading {
    status: Weak<Mutex<ReflectorStatus>>,
    clock: Clock,
    started: Instant,
}

impl ReflectorReading {
    pub(super) fn new(status: &Arc<Mutex<ReflectorStatus>>, clock: &Clock) -> Self {
        Self {
            status: Arc::downgrade(status),
            clock: clock.clone(),
            started: clock.now(),
        }
    }

    /// What the reflector does now and how it went (B14); `None` once it has ended. Never blocks on the network.
    pub fn status(&self) -> Option<ReflectorStatus> {
        let status = self.status.upgrade()?.lock().clone();
        (status.phase != Phase::Stopped).then_some(status)
    }

    /// How long ago the server last confirmed the content (B14), at a time when the reflector's state was `status`. Before the
    /// first contact it is counted from the reflector's start: a server that never answers is as silent as one that stopped.
    pub fn silence(&self, status: &ReflectorStatus) -> Duration {
        let now = self.clock.now();
        status
            .age(now)
            .unwrap_or_else(|| now.saturating_duration_since(self.started))
    }

    /// Whether the reflector has ended and nobody holds it any more: from then on there is nothing to read. Takes no lock.
    pub fn is_over(&self) -> bool {
        self.status.strong_count() == 0
    }
}

/// What one run counts for its hook. Without a hook it looks at no clock.
#[derive(Debug)]
pub(super) struct Measured {
    hook: Option<Arc<dyn ReflectorMetrics>>,
    clock: Clock,
    list: Option<Count>,
    watch: Option<Count>,
    /// The server ended the watch.
    at_its_end: bool,
}

/// Since when something goes on, and how many items came of it.
#[derive(Clone, Copy, Debug)]
struct Count {
    since: Instant,
    items: usize,
}

impl Measured {
    pub(super) fn new(hook: Option<Arc<dyn ReflectorMetrics>>, clock: Clock) -> Self {
        Self {
            hook,
            clock,
            list: None,
            watch: None,
            at_its_end: false,
        }
    }

    pub(super) fn list_begins(&mut self) {
        self.tell(|hook| hook.list_started());
        self.list = self.begun();
    }

    pub(super) fn listed(&mut self, undecodable: bool) {
        self.came(undecodable, |measured| &mut measured.list);
    }

    /// The last item has come; a second time nothing happens.
    pub(super) fn list_is_complete(&mut self) {
        if let Some(list) = self.list.take() {
            let took = self.lived(list);
            self.tell(|hook| hook.listed(list.items, took));
        }
    }

    pub(super) fn watch_begins(&mut self, streams_a_list: bool) {
        self.at_its_end = false;
        if streams_a_list {
            self.list_begins();
        }
        self.tell(|hook| hook.watch_started());
    }

    pub(super) fn watch_is_open(&mut self) {
        self.watch = self.begun();
    }

    /// An event or a bookmark of the watch reaches the sink (RF-43).
    pub(super) fn applied(&mut self, undecodable: bool) {
        self.came(undecodable, |measured| &mut measured.watch);
    }

    pub(super) fn watch_is_at_its_end(&mut self) {
        self.at_its_end = true;
    }

    /// The watch is closed, whoever ended it.
    pub(super) fn watch_over(&mut self) {
        let Some(watch) = self.watch.take() else {
            return;
        };
        let lived = self.lived(watch);
        // A streamed list that is under way, or failed, is no watch without items.
        let without_items = watch.items == 0 && self.list.is_none_or(|list| list.items == 0);
        if self.at_its_end && without_items && lived < VERY_SHORT {
            self.tell(|hook| hook.short_watch());
        }
        self.tell(|hook| hook.watch_ended(watch.items, lived));
    }

    fn begun(&self) -> Option<Count> {
        self.hook.as_ref().map(|_| Count {
            since: self.clock.now(),
            items: 0,
        })
    }

    fn came(&mut self, undecodable: bool, of: fn(&mut Self) -> &mut Option<Count>) {
        if let Some(count) = of(self) {
            count.items = count.items.saturating_add(1);
        }
        if undecodable {
            self.tell(|hook| hook.undecodable());
        }
    }

    fn lived(&self, count: Count) -> Duration {
        self.clock.now().saturating_duration_since(count.since)
    }

    /// A number that could not be counted is lost, and nothing else.
    fn tell(&self, call: impl FnOnce(&dyn ReflectorMetrics)) {
        if let Some(hook) = &self.hook {
            logged(format_args!("a hook of the metrics"), || call(&**hook));
        }
    }
}
