//! Tests of a whole reflector, thread and all, against the fake source and the fake clock.

mod behaviour;
mod bounds;
mod failures;
mod metrics;
mod panics;
mod simulation;
mod sinks;
mod streams;
mod waiters;

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;

use crate::Error;
use crate::clock::{Clock, Deadline, FakeClock};
use crate::object::{ResourceVersion, Status, StoredObject};
use crate::reflector::{Reflector, ReflectorOptions};
use crate::store::{Indexers, Store};
use crate::sync::Arc;
use crate::testing::{FakeSource, objects};
use crate::tests::until::{until, until_some};

/// A fake server, a fake clock, and the options that make waits exact.
struct Stage {
    fake: FakeClock,
    source: FakeSource<ConfigMap>,
    options: ReflectorOptions,
}

impl Stage {
    fn new() -> Self {
        let fake = FakeClock::new();
        let clock = Clock::from(fake.clone());
        Self {
            fake,
            source: FakeSource::with_clock(clock.clone()),
            options: ReflectorOptions::exact(clock),
        }
    }

    fn set(&self, name: &str, value: &str) -> u64 {
        self.source
            .set(objects::config_map("shop", name, "", &[("value", value)]))
    }

    fn start(&self) -> (Store<ConfigMap>, Reflector) {
        let source = Arc::new(self.source.clone());
        let options = self.options.clone();
        Store::spawn("t", source, Indexers::new().by_namespace(), options).unwrap()
    }

    /// Starts, and returns once a watch is open.
    fn synced(&self) -> (Store<ConfigMap>, Reflector) {
        let (store, reflector) = self.start();
        store.wait_until_synced(Deadline::NEVER).unwrap();
        self.source.wait_for_watches(1);
        (store, reflector)
    }

    /// Waits for a wait of exactly `wait` to begin, and ends it.
    fn pass(&self, wait: Duration) {
        self.fake.wait_for_timer(wait);
        self.fake.advance(wait);
    }

    /// Waits for the pause before the list that follows an expired position, and ends it.
    #[track_caller]
    fn soon(&self) {
        let next = until_some(|| {
            let next = self.fake.wait_for_next_timer();
            (!next.is_zero() && next < seconds(1)).then_some(next)
        });
        self.fake.advance(next);
    }

    /// How long ago the server last confirmed the content.
    fn age(&self, reflector: &Reflector) -> Option<Duration> {
        reflector.status().age(self.options.clock.now())
    }

    fn is_fresh_within(&self, limit: Duration, reflector: &Reflector) -> bool {
        let now = self.options.clock.now();
        reflector.status().is_fresh_within(limit, now)
    }

    /// Waits until the store has taken in everything the server has.
    fn catch_up(&self, store: &Store<ConfigMap>) {
        let target = ResourceVersion::from(self.source.version().to_string());
        store.wait_until_at_least(&target, Deadline::NEVER).unwrap();
    }

    /// The requests so far, written as `list 0`, `list 5 limit=2`, `watch 7`, `stream 7`.
    fn requests(&self) -> Vec<String> {
        use crate::testing::RequestKind::{Get, List, Watch};
        let written = self.source.requests().into_iter().map(|request| {
            let version = match request.resource_version.as_str() {
                "" => "most-recent",
                version => version,
            };
            let limit = match request.limit {
                0 | 500 => String::new(),
                limit => format!(" limit={limit}"),
            };
            let page = request
                .continue_token
                .map(|token| format!(" continue={token}"))
                .unwrap_or_default();
            match (request.kind, request.send_initial_events) {
                (List, _) => format!("list {version}{limit}{page}"),
                (Watch, false) => format!("watch {version}"),
                (Watch, true) => format!("stream {version}"),
                (Get, _) => format!("get {version}"),
            }
        });
        written.collect()
    }
}

fn held(name: &str, uid: &str, resource_version: &str) -> Arc<StoredObject<ConfigMap>> {
    let mut object = objects::config_map("shop", name, resource_version, &[("value", "sent")]);
    object.metadata.uid = Some(uid.to_owned());
    Arc::new(StoredObject::new(object))
}

fn value(store: &Store<ConfigMap>, name: &str) -> Option<String> {
    let object = store.get("shop", name).unwrap()?;
    object.data.as_ref()?.get("value").cloned()
}

fn names(store: &Store<ConfigMap>) -> Vec<String> {
    let mut names: Vec<_> = store
        .keys()
        .iter()
        .map(|key| key.name().to_owned())
        .collect();
    names.sort();
    names
}

fn status(code: u16) -> Error {
    Error::from_status(Status::new(code, format!("made up {code}")))
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
