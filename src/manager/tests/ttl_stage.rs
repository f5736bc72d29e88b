//! A TTL store of Secrets over a fake server and a clock that tests advance.

use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;

use super::fake::secret;
use crate::clock::{Clock, Deadline, FakeClock};
use crate::error::Error;
use crate::list_watch::Getter;
use crate::manager::kinds::KindTraits;
use crate::manager::node_ttl::NodeTtl;
use crate::manager::options::ManagerOptions;
use crate::manager::references::{Owner, ReferenceChange};
use crate::manager::registry::Registry;
use crate::manager::strategy::Strategy as _;
use crate::manager::ttl::store::TtlStore;
use crate::manager::{Cached, ObjectReport};
use crate::object::{ObjectKey, ResourceVersion, Status};
use crate::sync::Arc;
use crate::testing::{FakeSource, RequestKind, SourceFault};

pub(super) const MINUTE: Duration = Duration::from_mins(1);
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// The first backoff (B17).
pub(super) const FIRST_BACKOFF: Duration = Duration::from_millis(50);

/// A TTL store of Secrets over a fake server.
pub(super) struct Stage {
    pub(super) source: FakeSource<Secret>,
    pub(super) clock: FakeClock,
    pub(super) ttl: NodeTtl,
    pub(super) store: TtlStore<Secret>,
}

impl Stage {
    pub(super) fn new() -> Self {
        Self::over(|source| Arc::new(source.clone()))
    }

    /// Over a getter that stands between the store and the fake server.
    pub(super) fn over(
        getter: impl FnOnce(&FakeSource<Secret>) -> Arc<dyn Getter<Secret>>,
    ) -> Self {
        let fake = FakeClock::new();
        let clock = Clock::from(fake.clone());
        let source = FakeSource::with_clock(clock.clone());
        let ttl = NodeTtl::new();
        let options = ManagerOptions::default().clock(clock).node_ttl(ttl.clone());
        let store = TtlStore::new(Registry::new(
            KindTraits::default(),
            getter(&source),
            options,
        ));
        Self {
            source,
            clock: fake,
            ttl,
            store,
        }
    }

    /// With the Secret `s` on the server and referenced.
    pub(super) fn with_secret() -> Self {
        let stage = Self::new();
        stage.source.set(secret("s", ""));
        stage.add("s", "pod");
        stage
    }

    pub(super) fn change(&self, uid: &str, added: &[&str], removed: &[&str]) {
        let owner = Owner::new("Pod", ObjectKey::new("ns", uid));
        for name in added {
            let add = ReferenceChange::Add(ObjectKey::new("ns", *name));
            self.store.change_references(&owner, add);
        }
        for name in removed {
            let remove = ReferenceChange::Remove(ObjectKey::new("ns", *name));
            self.store.change_references(&owner, remove);
        }
    }

    pub(super) fn add(&self, name: &str, uid: &str) {
        self.change(uid, &[name], &[]);
    }

    pub(super) fn delete(&self, name: &str, uid: &str) {
        self.change(uid, &[], &[name]);
    }

    pub(super) fn soon(&self) -> Deadline {
        Deadline::at(self.clock.now().checked_add(PATIENCE).unwrap())
    }

    pub(super) fn now(&self) -> Deadline {
        Deadline::at(self.clock.now())
    }

    pub(super) fn get(&self, name: &str) -> Result<Cached<Secret>, Error> {
        self.store.get("ns", name, &|| self.soon())
    }

    pub(super) fn get_by(&self, name: &str, deadline: Deadline) -> Result<Cached<Secret>, Error> {
        self.store.get("ns", name, &|| deadline)
    }

    pub(super) fn get_fresh(&self, name: &str) -> Result<Cached<Secret>, Error> {
        self.store.get_at_least("ns", name, &"".into(), self.soon())
    }

    pub(super) fn get_at_least(&self, name: &str, version: &str) -> Result<Cached<Secret>, Error> {
        let version = ResourceVersion::from(version);
        self.store.get_at_least("ns", name, &version, self.soon())
    }

    pub(super) fn get_cached(&self, name: &str) -> Option<Cached<Secret>> {
        self.store.get_cached("ns", name).unwrap()
    }

    /// The version a get gives.
    pub(super) fn version(&self, name: &str) -> u64 {
        version(&self.get(name).unwrap())
    }

    /// How many requests were made.
    pub(super) fn requests(&self) -> usize {
        self.source.requests().len()
    }

    /// The versions that were asked for.
    pub(super) fn asked(&self) -> Vec<String> {
        let requests = self.source.requests();
        assert!(requests.iter().all(|seen| seen.kind == RequestKind::Get));
        let versions = requests
            .iter()
            .map(|seen| seen.resource_version.to_string());
        versions.collect()
    }

    pub(super) fn fail_next(&self, error: Error) {
        self.source
            .fail_next(RequestKind::Get, SourceFault::Fail(error));
    }

    pub(super) fn fail_all(&self) {
        self.source.fail_all(RequestKind::Get, unavailable());
    }

    pub(super) fn hang_next(&self) {
        self.source.fail_next(RequestKind::Get, SourceFault::Hang);
    }

    pub(super) fn expire(&self) {
        self.clock.advance(MINUTE);
    }

    pub(super) fn inspect(&self, name: &str) -> ObjectReport {
        self.store
            .entries()
            .inspect(&ObjectKey::new("ns", name))
            .unwrap()
    }
}

pub(super) fn version(secret: &Secret) -> u64 {
    let version = secret.metadata.resource_version.as_deref();
    version.unwrap().parse().unwrap()
}

pub(super) fn unavailable() -> Error {
    Error::from_status(Status::new(
        503,
        "the server is currently unable to handle the request",
    ))
}

pub(super) fn refused() -> Error {
    Error::from_status(Status::new(403, "secrets \"s\" is forbidden"))
}

pub(super) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(super) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A duration with a little less.
pub(super) fn less(duration: Duration, by: Duration) -> Duration {
    duration.checked_sub(by).unwrap()
}

/// What a reader on a thread of its own comes back with.
pub(super) type Reader<'scope> = ScopedJoinHandle<'scope, Result<Cached<Secret>, Error>>;

/// Starts a reader for each of the names.
pub(super) fn in_parallel<'scope>(
    scope: &'scope Scope<'scope, '_>,
    stage: &'scope Stage,
    names: &[&'scope str],
) -> Vec<Reader<'scope>> {
    let start = |name: &'scope str| scope.spawn(move || stage.get(name));
    names.iter().copied().map(start).collect()
}
