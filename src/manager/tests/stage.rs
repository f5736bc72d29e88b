//! The one harness of this room's tests: a manager of Secrets on a clock that stands still, and
//! what stands for the server.

#![cfg_attr(
    not(feature = "testing"),
    expect(dead_code, reason = "most of it is for tests over the fake server")
)]

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;

use super::fake::{FakeGetter, FakeRuns, ROUND};
use crate::clock::{Clock, Deadline, FakeClock};
use crate::error::Error;
use crate::list_watch::Getter;
use crate::manager::consistent_reads::begin_read;
use crate::manager::entry::content::ReadPosition;
use crate::manager::kinds::KindTraits;
use crate::manager::registry::Registry;
use crate::manager::ttl::store::TtlStore;
use crate::manager::watch::entry::WatchedObject;
use crate::manager::watch::store::WatchStore;
use crate::manager::{
    Cached, ChangeDetection, ManagerOptions, NodeTtl, ObjectReport, Owner, SecretManager,
};
use crate::object::{ObjectKey, ResourceVersion, Status, StoredObject};
use crate::sync::Arc;
#[cfg(feature = "testing")]
use crate::testing::{FakeSource, RequestKind, SourceFault, bad::Bad, bad::Faulty};
use crate::worker::Worker;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
/// How long a plain read of the stage waits, on its clock.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// The first backoff of a fetch (B17).
#[cfg(feature = "testing")]
pub(crate) const FIRST_BACKOFF: Duration = Duration::from_millis(50);

/// A read past the watch that is taken apart.
pub(crate) type ReadApart = (WatchedObject<Secret>, ReadPosition);

/// A manager, its clock, and what stands for the server: runs and gets that a test carries out by
/// hand, or a fake server. The builder decides which; the other is asked nothing.
pub(crate) struct Stage {
    pub(crate) manager: SecretManager,
    pub(crate) clock: FakeClock,
    pub(crate) ttl: NodeTtl,
    pub(crate) runs: FakeRuns,
    pub(crate) getter: FakeGetter,
    #[cfg(feature = "testing")]
    pub(crate) source: FakeSource<Secret>,
    /// Makes the code before the fake server panic.
    #[cfg(feature = "testing")]
    pub(crate) faulty: Faulty,
}

pub(crate) struct StageBuilder {
    clock: FakeClock,
    ttl: NodeTtl,
    options: ManagerOptions,
}

impl StageBuilder {
    pub(crate) fn options(self, set: impl FnOnce(ManagerOptions) -> ManagerOptions) -> Self {
        Self {
            options: set(self.options),
            ..self
        }
    }

    /// A manager whose runs and gets the test carries out; its housekeeper waits for the first
    /// round.
    pub(crate) fn by_hand(self) -> Stage {
        let (runs, getter) = (FakeRuns::default(), FakeGetter::default());
        let gets = Arc::new(getter.clone());
        let manager = if self.options.change_detection == ChangeDetection::Watch {
            let registry = Registry::new(KindTraits::default(), gets, self.options.clone());
            let store = WatchStore::new(Box::new(runs.clone()), registry).unwrap();
            let manager = SecretManager::over(Box::new(store)).unwrap();
            self.clock.wait_for_timer(ROUND);
            manager
        } else {
            getter.versions();
            self.fetching(gets)
        };
        Stage {
            runs,
            getter,
            ..self.stage(manager)
        }
    }

    fn fetching(&self, getter: Arc<dyn Getter<Secret>>) -> SecretManager {
        let registry = Registry::new(KindTraits::default(), getter, self.options.clone());
        SecretManager::over(Box::new(TtlStore::new(registry))).unwrap()
    }

    fn stage(self, manager: SecretManager) -> Stage {
        #[cfg(feature = "testing")]
        let source = self.source();
        Stage {
            manager,
            clock: self.clock,
            ttl: self.ttl,
            runs: FakeRuns::default(),
            getter: FakeGetter::default(),
            #[cfg(feature = "testing")]
            source,
            #[cfg(feature = "testing")]
            faulty: Faulty::default(),
        }
    }
}

#[cfg(feature = "testing")]
impl StageBuilder {
    fn source(&self) -> FakeSource<Secret> {
        FakeSource::with_clock(Clock::from(self.clock.clone()))
    }

    /// A manager over a fake server.
    pub(crate) fn start(self) -> Stage {
        self.start_with(Faulty::default())
    }

    /// As [`Self::start`], with faults that hooks may share.
    pub(crate) fn start_with(self, faulty: Faulty) -> Stage {
        let mut api = Bad::new(self.source());
        api.faulty = faulty;
        let manager = SecretManager::new(api.clone(), self.options.clone()).unwrap();
        Stage {
            source: api.server,
            faulty: api.faulty,
            ..self.stage(manager)
        }
    }

    /// A manager that fetches through `getter`, which may stand before the fake server.
    pub(crate) fn over(
        self,
        getter: impl FnOnce(&FakeSource<Secret>) -> Arc<dyn Getter<Secret>>,
    ) -> Stage {
        let source = self.source();
        let manager = self.fetching(getter(&source));
        Stage {
            source,
            ..self.stage(manager)
        }
    }
}

impl Stage {
    pub(crate) fn of(mode: ChangeDetection) -> StageBuilder {
        let (clock, ttl) = (FakeClock::new(), NodeTtl::new());
        let options = ManagerOptions::default()
            .clock(Clock::from(clock.clone()))
            .node_ttl(ttl.clone())
            .change_detection(mode);
        StageBuilder {
            clock,
            ttl,
            options,
        }
    }

    pub(crate) fn watching() -> StageBuilder {
        Self::of(ChangeDetection::Watch)
    }

    #[cfg(feature = "testing")]
    pub(crate) fn caching() -> StageBuilder {
        Self::of(ChangeDetection::Cache)
    }

    pub(crate) fn now(&self) -> Deadline {
        Deadline::at(self.clock.now())
    }

    pub(crate) fn soon(&self) -> Deadline {
        Clock::from(self.clock.clone()).after(PATIENCE)
    }

    pub(crate) fn get(&self, name: &str) -> Result<Cached<Secret>, Error> {
        self.get_by(name, self.soon())
    }

    /// The result of a get whose deadline has already passed.
    pub(crate) fn get_now(&self, name: &str) -> Result<Cached<Secret>, Error> {
        self.get_by(name, self.now())
    }

    pub(crate) fn get_by(&self, name: &str, deadline: Deadline) -> Result<Cached<Secret>, Error> {
        self.manager.get_by("ns", name, deadline)
    }

    pub(crate) fn get_fresh(&self, name: &str) -> Result<Cached<Secret>, Error> {
        self.manager.get_fresh("ns", name, self.soon())
    }

    pub(crate) fn get_at_least(&self, name: &str, asked: &str) -> Result<Cached<Secret>, Error> {
        let asked = ResourceVersion::from(asked);
        self.manager.get_at_least("ns", name, &asked, self.soon())
    }

    pub(crate) fn get_cached(&self, name: &str) -> Option<Cached<Secret>> {
        self.manager.get_cached("ns", name).unwrap()
    }

    /// The version a get gives.
    pub(crate) fn version(&self, name: &str) -> u64 {
        version(&self.get(name).unwrap())
    }

    /// The version a get gives at once.
    pub(crate) fn version_now(&self, name: &str) -> u64 {
        version(&self.get_now(name).unwrap())
    }

    pub(crate) fn inspect(&self, name: &str) -> ObjectReport {
        let key = ObjectKey::new("ns", name);
        self.manager.inspect_object(&key).unwrap()
    }

    /// A read on a thread of its own.
    pub(crate) fn reader<T: Send + 'static>(
        &self,
        read: impl FnOnce(&SecretManager) -> T + Send + 'static,
    ) -> Reader<T> {
        let (send, answer) = crossbeam_channel::bounded(1);
        let manager = self.manager.clone();
        let worker = Worker::spawn("t-read", move |_| {
            drop(send.send(read(&manager)));
        });
        Reader {
            answer,
            worker: worker.unwrap(),
        }
    }

    pub(crate) fn change(&self, owner: &str, added: &[&str], removed: &[&str]) {
        let owner = Owner::new("Pod", ObjectKey::new("ns", owner));
        for name in added {
            self.manager
                .add_reference(&owner, &ObjectKey::new("ns", *name));
        }
        for name in removed {
            self.manager
                .remove_reference(&owner, &ObjectKey::new("ns", *name));
        }
    }

    pub(crate) fn add(&self, name: &str, owner: &str) {
        self.change(owner, &[name], &[]);
    }

    pub(crate) fn delete(&self, name: &str, owner: &str) {
        self.change(owner, &[], &[name]);
    }
}

/// Stages whose watches the test carries out by hand.
impl Stage {
    pub(crate) fn by_hand() -> Self {
        Self::watching().by_hand()
    }

    /// The Secret `s` is referenced, and its watch filled with a list at 10.
    pub(crate) fn listed(object: Option<Secret>) -> Self {
        let stage = Self::by_hand();
        stage.manager.register_pod(&super::fake::pod("p", &["s"]));
        stage.runs.list("s", "10", object).unwrap();
        stage
    }

    /// The entry of a referenced Secret.
    pub(crate) fn entry(&self, name: &str) -> WatchedObject<Secret> {
        self.manager.store().entry_to_read("ns", name).unwrap()
    }

    /// Begins a read past the watch of a state not older than `version`, if the Secret is
    /// referenced; [`Self::complete`] ends it.
    pub(crate) fn begin(&self, name: &str, version: &str) -> Option<ReadApart> {
        let store = self.manager.store();
        let entry = store.entry_to_read("ns", name).ok()?;
        let read = begin_read(store.registry(), &entry, &version.into());
        Some((entry, read))
    }

    pub(crate) fn complete(
        &self,
        (entry, read): &ReadApart,
        answer: Result<Secret, Error>,
    ) -> Result<Cached<Secret>, Error> {
        let answer = answer.map(|object| Arc::new(StoredObject::new(object)));
        let store = self.manager.store();
        store.complete_read(entry, read, answer)
    }

    /// One round of the housekeeper.
    pub(crate) fn round(&self) {
        self.clock.advance(ROUND);
        self.clock.wait_for_timer(ROUND);
    }
}

/// Stages over a fake server.
#[cfg(feature = "testing")]
impl Stage {
    /// With `Cache`, the Secret `s` on the server and referenced.
    pub(crate) fn with_secret() -> Self {
        let stage = Self::caching().start();
        stage.set("s");
        stage.add("s", "pod");
        stage
    }

    /// Creates or changes the Secret; its version.
    pub(crate) fn set(&self, name: &str) -> u64 {
        self.source.set(super::fake::secret(name, ""))
    }

    /// How many requests were made.
    pub(crate) fn requests(&self) -> usize {
        self.source.requests().len()
    }

    /// The versions of the gets.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked_since(0)
    }

    /// The versions of the gets since the first `before` requests.
    pub(crate) fn asked_since(&self, before: usize) -> Vec<String> {
        let requests = self.source.requests().into_iter().skip(before);
        requests
            .filter(|request| request.kind == RequestKind::Get)
            .map(|request| request.resource_version.to_string())
            .collect()
    }

    pub(crate) fn fail_next(&self, error: Error) {
        self.source
            .fail_next(RequestKind::Get, SourceFault::Fail(error));
    }

    pub(crate) fn fail_all(&self) {
        self.source.fail_all(RequestKind::Get, unavailable());
    }

    pub(crate) fn hang_next(&self) {
        self.source.fail_next(RequestKind::Get, SourceFault::Hang);
    }

    /// A time to live passes.
    pub(crate) fn expire(&self) {
        self.clock.advance(MINUTE);
    }
}

/// A read on a thread of its own.
pub(crate) struct Reader<T> {
    pub(crate) answer: crossbeam_channel::Receiver<T>,
    worker: Worker,
}

impl<T> Reader<T> {
    pub(crate) fn answer(self) -> T {
        let answer = self.answer.recv().unwrap();
        self.worker.join().unwrap();
        answer
    }
}

pub(crate) fn version(secret: &Secret) -> u64 {
    let version = secret.metadata.resource_version.as_deref();
    version.unwrap().parse().unwrap()
}

pub(crate) fn failed(code: u16, words: &str) -> Error {
    Error::from_status(Status::new(code, words))
}

pub(crate) fn unavailable() -> Error {
    failed(503, "the server is currently unable to handle the request")
}

pub(crate) fn refused() -> Error {
    failed(403, "secrets \"s\" is forbidden")
}

#[cfg(feature = "testing")]
pub(crate) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[cfg(feature = "testing")]
pub(crate) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A duration with a little less.
#[cfg(feature = "testing")]
pub(crate) fn less(duration: Duration, by: Duration) -> Duration {
    duration.checked_sub(by).unwrap()
}

/// Starts a scoped reader for each of the names.
#[cfg(feature = "testing")]
pub(crate) fn in_parallel<'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    stage: &'scope Stage,
    names: &[&'scope str],
) -> Vec<std::thread::ScopedJoinHandle<'scope, Result<Cached<Secret>, Error>>> {
    let start = |name: &'scope str| scope.spawn(move || stage.get(name));
    names.iter().copied().map(start).collect()
}
