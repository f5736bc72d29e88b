//! A source that begins with a collection which the program stored, so that a restart of a cache
//! costs a watch and no whole list.

use std::cmp::Ordering;
use std::time::{Duration, SystemTime};

use super::{
    ListPage, ListRequest, Listed, ListerWatcher, RequestProgress, WatchRequest, WatchStream,
};
use crate::error::{Error, debug_of};
use crate::object::{Object, ResourceVersion, StoredObject};
use crate::setters::setters;
use crate::sync::{Arc, Mutex, Rank};
use crate::worker::StopToken;

/// A server keeps the history of about five minutes. This leaves time to open the watch.
const AGE_MAX: Duration = Duration::from_secs(3 * 60);

/// A collection as an earlier run of the program had it, and the version at which a watch may go
/// on. [`Store::position`](crate::store::Store::position) returns that of a store.
///
/// [`over`](Self::over) makes a source of it. A reflector or informer of that source begins with
/// these objects and opens its watch at their version. The server sends only what changed since.
///
/// The source lists as usual if the position is older than [`age_max`](Self::age_max). So it does
/// if the position is in the server's future (a restored backup), or has left its history (`410`).
///
/// Until the watch has delivered the later changes, readers see objects of the position's age, and
/// the [age](crate::reflector::ReflectorStatus::age) of the cache says so. A first list from a
/// server's cache may be as old. Use
/// [`Store::wait_until_at_least`](crate::store::Store::wait_until_at_least) for more.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "testing")] {
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kubecache::informer::{InformerOptions, SharedInformer};
/// use kubecache::testing::{FakeSource, objects};
///
/// let server = FakeSource::new();
/// server.set(objects::config_map("shop", "prices", "", &[]));
/// let source = Arc::new(server.clone());
/// let before = SharedInformer::<ConfigMap>::new(source.clone(), InformerOptions::default());
/// before.start()?;
/// before.wait_until_synced(Duration::from_secs(60))?;
///
/// let position = before.store().position().expect("all objects decode");
/// drop(before);
/// server.set(objects::config_map("shop", "limits", "", &[]));
///
/// let next = SharedInformer::new(position.over(source), InformerOptions::default());
/// next.start()?;
/// let version = server.version().to_string().into();
/// next.store().wait_until_at_least(&version, Duration::from_secs(60))?;
/// assert_eq!(next.store().list().len(), 2);
/// # }
/// # Ok::<(), kubecache::Error>(())
/// ```
#[must_use = "a position does nothing before it stands over a source"]
pub struct StoredPosition<K: Object> {
    resource_version: ResourceVersion,
    taken: SystemTime,
    objects: Vec<Arc<StoredObject<K>>>,
    age_max: Duration,
}

debug_of!([K: Object] StoredPosition<K>, |it|
    resource_version: it.resource_version, objects: it.objects.len(), age_max: it.age_max, ..);

setters! { [K: Object] StoredPosition<K>;
    /// Sets the age from which the position is not used, because the server may have forgotten it.
    /// Default: 3 minutes.
    age_max(age: Duration);
}

impl<K: Object> StoredPosition<K> {
    /// Takes what the program stored at the time `taken`: the version, and all objects of the scope
    /// at that version or later.
    ///
    /// The cache misses an object that is not among them until it changes. A transform of the
    /// informer sees the objects again, so it must leave alone what it has transformed.
    pub fn new(
        resource_version: ResourceVersion,
        taken: SystemTime,
        objects: Vec<Arc<StoredObject<K>>>,
    ) -> Self {
        Self {
            resource_version,
            taken,
            objects,
            age_max: AGE_MAX,
        }
    }

    /// Returns the version after which a watch goes on.
    pub fn resource_version(&self) -> &ResourceVersion {
        &self.resource_version
    }

    /// Returns when the server last confirmed the objects.
    pub fn taken(&self) -> SystemTime {
        self.taken
    }

    /// Returns the objects.
    pub fn objects(&self) -> &[Arc<StoredObject<K>>] {
        &self.objects
    }

    /// Returns `source` with this position as the answer of its first list, once. The scope of
    /// `source` must be that of the objects.
    ///
    /// Before the source answers so, it asks the server for one object, to learn the server's
    /// version. An error of that request is an error of the list. The position stays for the next
    /// try.
    pub fn over(self, source: Arc<dyn ListerWatcher<K>>) -> Arc<dyn ListerWatcher<K>> {
        Arc::new(SourceFromPosition {
            source,
            position: Mutex::ranked(Rank::STORED_POSITION, Some(self)),
        })
    }

    /// Whether it is young enough. A time in the future says nothing about the age.
    fn is_young(&self) -> bool {
        let age = self.taken.elapsed();
        age.is_ok_and(|age| age <= self.age_max) && !self.resource_version.is_unset()
    }
}

/// A source, and the position that it has not used yet.
struct SourceFromPosition<K: Object> {
    source: Arc<dyn ListerWatcher<K>>,
    position: Mutex<Option<StoredPosition<K>>>,
}

impl<K: Object> SourceFromPosition<K> {
    fn has_position(&self) -> bool {
        let mut position = self.position.lock();
        // What is too old now holds memory for nothing.
        let old = position.take_if(|position| !position.is_young());
        let has = position.is_some();
        drop(position);
        drop(old);
        has
    }

    /// The position for a first list, unless the server does not have it yet.
    ///
    /// A watch from a version in the future is silent until the server gets there, and what changed
    /// before is never sent. At the present version nothing changed, so the objects have no age.
    fn usable(
        &self,
        request: &ListRequest,
        stop: &StopToken,
    ) -> Result<Option<(StoredPosition<K>, Duration)>, Error> {
        let is_first =
            request.resource_version == ResourceVersion::any() && request.continue_token.is_none();
        if !is_first || !self.has_position() {
            return Ok(None);
        }
        let probe = ListRequest {
            limit: 1,
            urgent: request.urgent,
            ..ListRequest::default()
        };
        let server = self.source.list(&probe, stop, &mut |_| ())?;
        let position = self.position.lock().take();
        Ok(position.and_then(|position| {
            let at_server = &server.resource_version;
            let age = match at_server.numeric_order(&position.resource_version)? {
                Ordering::Less => return None,
                Ordering::Equal => Duration::ZERO,
                Ordering::Greater => position.taken.elapsed().unwrap_or_default(),
            };
            Some((position, age))
        }))
    }
}

impl<K: Object> ListerWatcher<K> for SourceFromPosition<K> {
    fn list(
        &self,
        request: &ListRequest,
        stop: &StopToken,
        each: &mut dyn FnMut(Listed<K>),
    ) -> Result<ListPage, Error> {
        let Some((position, age)) = self.usable(request, stop)? else {
            return self.source.list(request, stop, each);
        };
        for object in position.objects {
            each(Listed::Object(object));
        }
        Ok(ListPage {
            resource_version: position.resource_version,
            age,
            ..ListPage::default()
        })
    }

    fn watch(
        &self,
        request: &WatchRequest,
        stop: &StopToken,
    ) -> Result<Box<dyn WatchStream<K>>, Error> {
        self.source.watch(request, stop)
    }

    fn expedite(&self) {
        self.source.expedite();
    }

    /// A streamed list would come from the server, so a position goes first.
    fn supports_watch_list(&self) -> bool {
        !self.has_position() && self.source.supports_watch_list()
    }

    fn watch_list_failed(&self) {
        self.source.watch_list_failed();
    }

    fn bookmark_interval(&self) -> Option<Duration> {
        self.source.bookmark_interval()
    }

    fn bookmark_came(&self, interval: Duration) {
        self.source.bookmark_came(interval);
    }

    fn lists_one_object(&self) -> bool {
        self.source.lists_one_object()
    }

    fn progress(&self) -> Option<RequestProgress> {
        self.source.progress()
    }

    fn disconnect(&self) {
        self.source.disconnect();
    }

    fn objects_max(&self) -> usize {
        self.source.objects_max()
    }

    fn check(&self) -> Result<(), Error> {
        self.source.check()
    }

    fn describe(&self) -> String {
        self.source.describe()
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::guard::guard;
    use crate::testing::FakeSource;
    use crate::testing::bad::Bad;

    fn at_5() -> StoredPosition<ConfigMap> {
        StoredPosition::new("5".into(), SystemTime::now(), Vec::new())
    }

    #[test]
    fn lists_are_streamed_once_the_position_is_used() {
        let server = FakeSource::new();
        server.stream_lists(true);
        let source = at_5().over(Arc::new(server));
        assert!(!source.supports_watch_list());
        let first = ListRequest {
            resource_version: ResourceVersion::any(),
            ..ListRequest::default()
        };
        let stop = StopToken::never();
        source.list(&first, &stop, &mut drop).unwrap();
        assert!(source.supports_watch_list());
    }

    /// Else a reflector would go on with a connection that is dead.
    #[test]
    fn a_disconnect_reaches_the_source() {
        let bad = Bad::new(FakeSource::new());
        let faulty = bad.faulty.clone();
        faulty.panic_in("disconnect", 1);
        let source = at_5().over(Arc::new(bad));
        assert!(guard("a disconnect", || source.disconnect()).is_err());
        assert_eq!(faulty.left(), 0);
    }
}
