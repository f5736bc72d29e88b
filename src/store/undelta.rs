//! The undelta store: after every change the whole list is pushed to a function (MX-2).

use std::fmt;

use crate::clock::Clock;
use crate::error::Error;
use crate::list_watch::ObjectEvent;
use crate::object::{Object, ResourceVersion, StoredObject};
use crate::reflector::{ReflectorStatus, Replacement, Sink};
use crate::store::{Indexers, Staging, Store, StoreWriter};
use crate::sync::Arc;

/// The writing side of a [`Store`] that hands the whole list to a function after each change: for programs that work on
/// "all pods of this node" and not on single events, as the kubelet's source of pods does (MX-2).
///
/// It is the sink of one reflector, on whose thread the function is called, under no lock: with the objects that decode, in
/// no particular order, after every list and every event that was not refused. Bookmarks, reads and failures push nothing.
/// Pushes come in the order of the changes, each with exactly the content after its change. (In client-go writers can push
/// the same state twice, or an older one after a newer one.)
///
/// The function holds up the watch while it runs, and each push costs as much as there are objects: hand the list on to
/// another thread if the work is long. A panic of it ends the reflector, and every wait on the store ends with an error.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "testing")] {
/// use std::sync::Arc;
///
/// use k8s_openapi::api::core::v1::Pod;
/// use kubecache::clock::Clock;
/// use kubecache::reflector::{Reflector, ReflectorOptions};
/// use kubecache::store::{Indexers, UndeltaWriter};
/// use kubecache::testing::{FakeSource, objects};
///
/// let source = FakeSource::<Pod>::new();
/// source.set(objects::pod("shop", "web-0", "node-1", &[], &[]));
///
/// let (pushes, all_pods) = std::sync::mpsc::channel();
/// let push = move |pods: Vec<_>| drop(pushes.send(pods));
/// let (store, writer) = UndeltaWriter::new(Indexers::new(), Clock::system(), push);
/// let mut options = ReflectorOptions::default();
/// options.demand = Some(store.demand());
/// let reflector = Reflector::spawn("pods", Arc::new(source.clone()), writer, options)?;
///
/// assert_eq!(all_pods.recv().map(|pods| pods.len()), Ok(1));
/// source.set(objects::pod("shop", "web-1", "node-1", &[], &[]));
/// assert_eq!(all_pods.recv().map(|pods| pods.len()), Ok(2));
/// # drop(reflector);
/// # }
/// # Ok::<(), kubecache::Error>(())
/// ```
#[doc(alias = "UndeltaStore")]
pub struct UndeltaWriter<K: Object, P> {
    store: Store<K>,
    writer: StoreWriter<K>,
    push: P,
}

impl<K, P> UndeltaWriter<K, P>
where
    K: Object,
    P: FnMut(Vec<Arc<StoredObject<K>>>) + Send + 'static,
{
    /// A store, and its one writer, which calls `push` with the whole list after each change.
    ///
    /// Give the store's [`demand`](Store::demand) to the reflector that gets the writer, so that it hurries while somebody
    /// waits.
    pub fn new(indexers: Indexers<K>, clock: Clock, push: P) -> (Store<K>, Self) {
        let (store, writer) = Store::new(indexers, clock);
        let writer = Self {
            store: store.clone(),
            writer,
            push,
        };
        (store, writer)
    }

    fn push(&mut self) {
        (self.push)(self.store.list());
    }
}

impl<K, P> Sink<K> for UndeltaWriter<K, P>
where
    K: Object,
    P: FnMut(Vec<Arc<StoredObject<K>>>) + Send + 'static,
{
    type Staging = Staging<K>;

    fn begin(&mut self) -> Staging<K> {
        self.writer.begin()
    }

    fn stage(&mut self, staging: &mut Staging<K>, event: ObjectEvent<K>) {
        self.writer.stage(staging, event);
    }

    fn commit(&mut self, staging: Staging<K>, of: &Replacement) -> Result<(), Error> {
        self.writer.commit(staging, of)?;
        self.push();
        Ok(())
    }

    fn apply(&mut self, event: ObjectEvent<K>) -> Result<(), Error> {
        let refused_before = self.store.refused();
        self.writer.apply(event)?;
        if self.store.refused() == refused_before {
            self.push();
        }
        Ok(())
    }

    fn bookmark(&mut self, version: &ResourceVersion) {
        self.writer.bookmark(version);
    }

    fn report(&mut self, status: &ReflectorStatus) {
        self.writer.report(status);
    }
}

impl<K: Object, P> fmt::Debug for UndeltaWriter<K, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UndeltaWriter")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}
