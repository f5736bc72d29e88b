//! An API server for tests, without sockets: history, compaction, pages, bookmarks, scripted
//! faults, and a record of every request.

mod faults;
mod feed;
mod model;
mod server;
mod stream;

use std::time::Duration;

use k8s_openapi::Metadata;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::clock::{Clock, Deadline};
use crate::error::{Error, ErrorKind};
use crate::list_watch::{
    Api, Getter, ListPage, ListRequest, Listed, ListerWatcher, WatchEvent, WatchRequest,
    WatchStream,
};
use crate::object::{Object, ObjectKey, ResourceVersion, Scope, StoredObject};
use crate::sync::{Arc, Monitor};
use crate::worker::StopToken;

pub use faults::{RequestKind, SeenRequest, SourceFault};

use model::{expired, undecodable};
use server::Server;
use stream::Stream;

/// A fake [`ListerWatcher`], [`Getter`] and [`Api`] for one kind. Cheap to clone; all clones are
/// one server.
///
/// Lists, watches and gets behave as an API server's do: consistent and cached reads, pages that
/// expire, a watch cache that may lag, `410` after compaction, streamed lists. Script faults with
/// [`fail_next`](Self::fail_next), or decide them per request with [`plan`](Self::plan). Only the
/// selectors namespace and `metadata.name` count.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "testing")] {
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kubecache::testing::{FakeSource, objects};
///
/// let source = FakeSource::<ConfigMap>::new();
/// let version = source.set(objects::config_map("shop", "settings", "", &[("tax", "7")]));
/// assert_eq!(source.version(), version);
/// assert!(source.requests().is_empty());
/// # }
/// ```
#[derive(Debug)]
pub struct FakeSource<K: Object> {
    server: Arc<Monitor<Server<K>>>,
    clock: Clock,
    scope: Scope,
}

impl<K: Object> Clone for FakeSource<K> {
    fn clone(&self) -> Self {
        Self {
            server: Arc::clone(&self.server),
            clock: self.clock.clone(),
            scope: self.scope.clone(),
        }
    }
}

impl<K: Object> Default for FakeSource<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Object> FakeSource<K> {
    /// Makes an empty server at version 1, on the system's clock.
    pub fn new() -> Self {
        Self::with_clock(Clock::system())
    }

    /// Makes an empty server at version 1, on the test's clock.
    pub fn with_clock(clock: Clock) -> Self {
        Self {
            server: Arc::new(Monitor::new(Server::default())),
            clock,
            scope: Scope::all(),
        }
    }

    /// Sets an undecodable object. Returns its version.
    pub fn set_undecodable(&self, namespace: &str, name: &str) -> u64 {
        self.change(|server| {
            let key = ObjectKey::new(namespace, name);
            let version = server.model.next_version();
            let uid = server.model.uid(&key);
            let item = Listed::from(undecodable(&key, uid, version));
            server.model.record(key, item);
            version
        })
    }

    /// Raises the server's version without changing an object of this kind.
    pub fn skip_to(&self, version: u64) {
        self.change(|server| server.model.skip_to(version));
    }

    /// Forgets the history: later watches from before this version, and pages and exact lists of
    /// it, get `410`.
    pub fn compact(&self) {
        self.change(|server| server.model.compact());
    }

    /// Goes back to an earlier version, as a restored backup does: open watches break off.
    pub fn restore(&self, version: u64) {
        self.change(|server| {
            server.model.restore(version);
            for (_, feed) in &mut server.feeds {
                feed.end(Some(&faults::cut()));
            }
        });
    }

    /// Ends every open watch with `410 Expired`, as servers do with watches that are too slow.
    pub fn expire_watches(&self) {
        self.change(|server| {
            let oldest = server.model.version();
            for (_, feed) in &mut server.feeds {
                feed.send(WatchEvent::Error(expired(0, oldest)));
                feed.end(None);
            }
        });
    }

    /// Makes lists and gets at `0` see an older state, like a lagging watch cache. `None` ends
    /// that.
    pub fn lag(&self, version: Option<u64>) {
        self.change(|server| server.cached = version);
    }

    /// Sets whether the server supports streamed lists. Default: false.
    pub fn stream_lists(&self, streams: bool) {
        self.change(|server| server.streams_lists = streams);
    }

    /// Sets whether lists at `0` come in pages, as without a watch cache. Default: false.
    pub fn page_at_zero(&self, pages: bool) {
        self.change(|server| server.pages_at_zero = pages);
    }

    /// Sets how many objects a cache of this source holds. Default: 5,000,000.
    pub fn limit_objects(&self, objects_max: usize) {
        self.change(|server| server.objects_max = objects_max);
    }

    /// Sets whether a watch from a future version opens and stays silent, as on a server whose
    /// history was restored from a backup. Default: false, the server refuses it.
    pub fn silent_futures(&self, silent: bool) {
        self.change(|server| server.silent_futures = silent);
    }

    /// Sends a bookmark on every open watch, once it has delivered all due events.
    pub fn bookmark(&self) {
        self.change(|server| {
            for (_, feed) in &mut server.feeds {
                feed.bookmark();
            }
        });
    }

    /// Sends the test's own event on every open watch: duplicates, older versions, foreign types,
    /// errors.
    pub fn send(&self, mut event: impl FnMut() -> WatchEvent<K>) {
        self.change(|server| {
            for (_, feed) in &mut server.feeds {
                feed.send(event());
            }
        });
    }

    /// Ends every open watch, once it has delivered all due events: cleanly, or broken off with an
    /// error.
    pub fn end_watches(&self, end: Option<&Error>) {
        self.change(|server| {
            for (_, feed) in &mut server.feeds {
                feed.end(end);
            }
        });
    }

    /// Plans a fault for the next request of a kind. Several planned faults apply in order.
    pub fn fail_next(&self, kind: RequestKind, fault: SourceFault) {
        self.change(|server| server.plan.push(kind, fault));
    }

    /// Makes every request of a kind fail with `error` until [`heal`](Self::heal), after those of
    /// [`fail_next`](Self::fail_next).
    pub fn fail_all(&self, kind: RequestKind, error: Error) {
        self.change(|server| server.plan.always(kind, error));
    }

    /// Removes every planned fault, and answers the requests that hang.
    pub fn heal(&self) {
        self.change(|server| server.plan.heal());
    }

    /// Decides each request's fault with the test's own function, which must not use the source.
    pub fn plan(&self, decide: impl FnMut(&SeenRequest) -> Option<SourceFault> + Send + 'static) {
        self.change(|server| server.plan.decide_with(Box::new(decide)));
    }

    /// Returns the server's version.
    pub fn version(&self) -> u64 {
        self.server.lock().model.version()
    }

    /// Returns every request so far, in order.
    pub fn requests(&self) -> Vec<SeenRequest> {
        self.server.lock().requests.clone()
    }

    /// Returns how many watches are open.
    pub fn open_watches(&self) -> usize {
        self.server.lock().feeds.len()
    }

    /// Returns how often a client reported that streamed lists make no progress.
    pub fn watch_list_failures(&self) -> usize {
        self.server.lock().watch_list_failures
    }

    /// Blocks until at least `count` requests have come. Nothing else ends this call.
    pub fn wait_for_requests(&self, count: usize) {
        let mut server = self.server.lock();
        while server.requests.len() < count {
            server = self.server.wait(server);
        }
    }

    /// Blocks until exactly `count` watches are open. Nothing else ends this call.
    pub fn wait_for_watches(&self, count: usize) {
        let mut server = self.server.lock();
        while server.feeds.len() != count {
            server = self.server.wait(server);
        }
    }

    /// Returns the server's objects in the order of their keys. A cache must end with the same.
    pub fn objects(&self) -> Vec<Arc<StoredObject<K>>> {
        let server = self.server.lock();
        let items = server.model.present().values();
        items
            .filter_map(|item| match item {
                Listed::Object(object) => Some(Arc::clone(object)),
                Listed::Undecodable(_) => None,
            })
            .collect()
    }

    fn change<T>(&self, change: impl FnOnce(&mut Server<K>) -> T) -> T {
        let result = change(&mut self.server.lock());
        self.server.notify_all();
        result
    }

    /// Records a request, and applies the fault planned for it. A request that hangs ends at the
    /// stop, a heal, or the deadline of a get.
    fn enter(
        &self,
        request: SeenRequest,
        deadline: Deadline,
        stop: &StopToken,
    ) -> Result<Option<SourceFault>, Error> {
        let (fault, healed) = self.change(|server| {
            let fault = server.plan.next(&request);
            server.requests.push(request);
            (fault, server.plan.healed())
        });
        match fault {
            Some(SourceFault::Fail(error)) => Err(error),
            Some(SourceFault::Hang) => {
                self.hang(healed, deadline, stop)?;
                Ok(None)
            }
            Some(SourceFault::CutAfter(_) | SourceFault::Silent | SourceFault::Trickle) | None => {
                Ok(fault)
            }
        }
    }

    /// Hangs until the server has been healed more often than `healed`, the count when the request
    /// came. So a test that has seen the request and heals the server always ends the hang.
    fn hang(&self, healed: u64, deadline: Deadline, stop: &StopToken) -> Result<(), Error> {
        let _registration = stop.register(&stream::waker(&self.server));
        let mut server = self.server.lock();
        while server.plan.healed() == healed {
            if stop.is_stopped() {
                return Err(Error::stopped("a request that hangs"));
            }
            if self.clock.has_passed(deadline) {
                return Err(Error::new(ErrorKind::Timeout, "no answer by the deadline"));
            }
            server = self.clock.wait_until(&self.server, server, deadline);
        }
        Ok(())
    }

    fn seen(&self, kind: RequestKind, version: &ResourceVersion) -> SeenRequest {
        SeenRequest::new(kind, self.scope.clone(), version.clone(), self.clock.now())
    }
}

impl<K: Object + Metadata<Ty = ObjectMeta>> FakeSource<K> {
    /// Creates or changes an object. The server assigns the next version, and a uid if it is new.
    /// Returns the version.
    pub fn set(&self, mut object: K) -> u64 {
        self.change(|server| {
            let key = object.key();
            let version = server.model.next_version();
            let uid = server.model.uid(&key);
            let metadata = object.metadata_mut();
            metadata.resource_version = Some(version.to_string());
            metadata.uid = Some(uid);
            let item = Listed::Object(Arc::new(StoredObject::new(object)));
            server.model.record(key, item);
            version
        })
    }
}

impl<K: Object + Metadata<Ty = ObjectMeta> + Clone> FakeSource<K> {
    /// Deletes an object, whose last state gets the version of the deletion. Returns the version;
    /// `None` when there is no such object.
    pub fn delete(&self, namespace: &str, name: &str) -> Option<u64> {
        let key = ObjectKey::new(namespace, name);
        self.change(|server| {
            let last = server.model.present().get(&key)?.clone();
            let version = server.model.next_version();
            let last = match last {
                Listed::Object(object) => {
                    let mut object = K::clone(&object);
                    object.metadata_mut().resource_version = Some(version.to_string());
                    Listed::Object(Arc::new(StoredObject::new(object)))
                }
                Listed::Undecodable(object) => Listed::from(undecodable(&key, object.uid, version)),
            };
            server.model.remove(key, last);
            Some(version)
        })
    }
}

impl<K: Object> ListerWatcher<K> for FakeSource<K> {
    fn list(
        &self,
        request: &ListRequest,
        stop: &StopToken,
        each: &mut dyn FnMut(Listed<K>),
    ) -> Result<ListPage, Error> {
        let seen = self
            .seen(RequestKind::List, &request.resource_version)
            .of_list(request);
        let fault = self.enter(seen, Deadline::NEVER, stop)?;
        let cut = match fault {
            Some(SourceFault::CutAfter(items)) => Some(items),
            Some(
                SourceFault::Fail(_)
                | SourceFault::Hang
                | SourceFault::Silent
                | SourceFault::Trickle,
            )
            | None => None,
        };
        let (items, page) = self.server.lock().page(request, &self.scope)?;
        for (count, item) in items.iter().enumerate() {
            if stop.is_stopped() {
                return Err(Error::stopped("a list"));
            }
            if cut == Some(count) {
                return Err(faults::cut());
            }
            each(item.clone());
        }
        if cut.is_some() {
            return Err(faults::cut());
        }
        Ok(page)
    }

    fn watch(
        &self,
        request: &WatchRequest,
        stop: &StopToken,
    ) -> Result<Box<dyn WatchStream<K>>, Error> {
        let seen = self
            .seen(RequestKind::Watch, &request.resource_version)
            .of_watch(request);
        let fault = self.enter(seen, Deadline::NEVER, stop)?;
        let now = self.clock.now();
        let feed = self.server.lock().feed(request, fault.as_ref())?;
        let deadline = now
            .checked_add(request.timeout)
            .map_or(Deadline::NEVER, Deadline::at);
        let id = self.change(|server| server.open(feed));
        Ok(Box::new(Stream {
            _registration: stop.register(&stream::waker(&self.server)),
            server: Arc::clone(&self.server),
            clock: self.clock.clone(),
            scope: self.scope.clone(),
            id,
            deadline,
            stop: stop.clone(),
            last_contact: now,
        }))
    }

    fn supports_watch_list(&self) -> bool {
        self.server.lock().streams_lists
    }

    fn watch_list_failed(&self) {
        self.change(|server| {
            server.streams_lists = false;
            server.watch_list_failures = server.watch_list_failures.saturating_add(1);
        });
    }

    fn bookmark_interval(&self) -> Option<Duration> {
        self.server.lock().bookmark_interval
    }

    fn bookmark_came(&self, interval: Duration) {
        self.change(|server| {
            server.bookmark_interval = server.bookmark_interval.max(Some(interval));
        });
    }

    fn lists_one_object(&self) -> bool {
        self.scope.is_one_object()
    }

    fn objects_max(&self) -> usize {
        self.server.lock().objects_max
    }

    fn describe(&self) -> String {
        let resource = K::resource();
        let kind = resource.plural();
        let name = self.scope.field_selector().as_str();
        match (self.scope.namespace_name(), name) {
            (None, "") => kind.to_owned(),
            (None, name) => format!("{kind} with {name}"),
            (Some(namespace), "") => format!("{kind} in namespace {namespace:?}"),
            (Some(namespace), name) => format!("{kind} in namespace {namespace:?} with {name}"),
        }
    }
}

impl<K: Object> Getter<K> for FakeSource<K> {
    fn get(
        &self,
        key: &ObjectKey,
        version: &ResourceVersion,
        deadline: Deadline,
        stop: &StopToken,
    ) -> Result<Arc<StoredObject<K>>, Error> {
        let mut seen = self.seen(RequestKind::Get, version);
        seen.scope = Scope::object(key);
        self.enter(seen, deadline, stop)?;
        let found = self.server.lock().one(key, version)?;
        match found {
            Some(Listed::Object(object)) => Ok(object),
            Some(Listed::Undecodable(object)) => Err(object.error),
            None => Err(Error::not_found(K::resource().plural(), key.name())),
        }
    }
}

impl<K: Object> Api<K> for FakeSource<K> {
    fn lister_watcher(&self, scope: Scope) -> Arc<dyn ListerWatcher<K>> {
        Arc::new(Self {
            scope,
            ..self.clone()
        })
    }

    fn getter(&self) -> Arc<dyn Getter<K>> {
        Arc::new(self.clone())
    }
}
