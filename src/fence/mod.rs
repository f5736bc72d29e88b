//! The write fence: a program notes what it wrote for an owner, and waits until its caches have
//! seen that.

#[cfg(all(test, shuttle))]
mod schedules;
#[cfg(feature = "testing")]
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Instant;

use crate::clock::{Clock, Deadline, IntoDeadline};
use crate::error::{Error, ErrorKind, debug_of};
use crate::manager::{ObjectManager, Owner};
use crate::object::{Object, ObjectKey, ResourceVersion};
use crate::store::Store;
use crate::sync::{Arc, Mutex, Rank};

/// Keeps a program from acting on caches that have not yet seen what it wrote.
///
/// A program notes each write with the cache that will bring it, for the owner on whose behalf it
/// wrote. Before it acts for that owner again, it [waits](Self::wait_until_seen). An [`Owner`] has
/// the UID of its object, so that a new one of the same name begins anew. The fence keeps a write
/// until a wait has found it seen or the owner is [forgotten](Self::forget).
///
/// A [`MutationCache`](crate::store::MutationCache) serves another need: it shows one's own writes
/// at once. Use it to read them; use the fence to act only on what the server has brought, with all
/// that others wrote until then.
///
/// Share it behind an `Arc`. It has no thread. One lock is held for a map access only.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "testing")] {
/// use std::time::Duration;
///
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kubecache::clock::Clock;
/// use kubecache::fence::WriteFence;
/// use kubecache::http::{Client, ClientOptions, Config, WriteOptions};
/// use kubecache::informer::{InformerSet, InformerSetOptions};
/// use kubecache::manager::Owner;
/// use kubecache::object::{Object as _, ObjectKey};
/// use kubecache::testing::objects;
/// # let server = kubecache::testing::ApiServer::new()?;
/// # let config = Config::for_server(&server.url())?;
///
/// // let config = Config::infer()?;
/// let client = Client::new(&config, ClientOptions::default())?;
/// let set = InformerSet::new(client.clone(), InformerSetOptions::default());
/// let settings = set.informer::<ConfigMap>()?;
/// set.start()?;
/// let owner = Owner::new("Shop", ObjectKey::new("default", "shop"));
/// let soon = Duration::from_secs(60);
/// let fence = WriteFence::new(Clock::system());
///
/// let mine = objects::config_map("default", "settings", "", &[("tax", "7")]);
/// let written = client.create(&mine, &WriteOptions::default(), soon)?;
/// fence.wrote(&owner, settings.store(), &written.resource_version())?;
///
/// // At the beginning of the next round for this owner:
/// fence.wait_until_seen(&owner, soon)?;
/// assert!(settings.store().get("default", "settings")?.is_some());
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("ConsistencyStore", "read-your-writes", "expectations"))]
pub struct WriteFence {
    owners: Mutex<BTreeMap<Owner, Vec<Arc<NotedWrite>>>>,
    clock: Clock,
}

/// A cache that a [`WriteFence`] waits for, made by `into()`.
///
/// It is made from a `&Store<K>`, such as [`SharedInformer::store`] of an informer or of a member
/// of a set. For an object of a manager it is made from `(&manager, &key)`.
///
/// [`SharedInformer::store`]: crate::informer::SharedInformer::store
#[derive(Clone)]
pub struct FencedCache {
    name: String,
    /// The address of the cache, and the object if it is one of a manager.
    identity: (usize, Option<ObjectKey>),
    wait: Arc<FenceWait>,
}

type FenceWait = dyn Fn(&NotedWrite, Deadline) -> Result<(), Error> + Send + Sync;

/// A write that no wait has found seen.
struct NotedWrite {
    cache: FencedCache,
    /// The most recent one for a deletion.
    version: ResourceVersion,
    /// The key and the UID of the deleted object.
    deleted: Option<(ObjectKey, Box<str>)>,
    at: Instant,
}

impl WriteFence {
    /// Makes a fence without any write, whose deadlines follow `clock`.
    pub fn new(clock: Clock) -> Self {
        let owners = Mutex::ranked(Rank::FENCE, BTreeMap::new());
        Self { owners, clock }
    }

    /// Notes that the program wrote for `owner`, and that the server answered with `version`.
    /// `cache` is the one that will bring it: `&store`, `informer.store()`, or `(&manager, &key)`.
    ///
    /// Of several writes to one cache, the newest version counts. Never blocks.
    ///
    /// # Errors
    ///
    /// `Config` if the version is not a number, because no cache could be compared with it. The
    /// fence then notes nothing.
    #[doc(alias = "WroteAt")]
    pub fn wrote(
        &self,
        owner: &Owner,
        cache: impl Into<FencedCache>,
        version: &ResourceVersion,
    ) -> Result<(), Error> {
        let cache = cache.into();
        if version.numeric_order(version).is_none() {
            let text = format!(
                "a write that {} will bring: version {:?} is not a number; note \
                 metadata.resourceVersion of what the server answered",
                cache.name,
                version.as_str()
            );
            return Err(Error::new(ErrorKind::Config, text));
        }
        self.note(owner, cache, version.clone(), None);
        Ok(())
    }

    /// Notes that the program deleted, for `owner`, the object of that key and UID. It is seen once
    /// the cache has no such object, or one with another UID. Never blocks.
    ///
    /// If the program created the object too, it notes that creation ([`wrote`](Self::wrote)). Else
    /// a cache that has not seen the creation yet counts as one that has seen the end.
    ///
    /// A manager asks the server once, and again at each change of its objects. So with `Cache` and
    /// `Get` a wait does not see an end that comes later.
    ///
    /// Where a finalizer or a grace period keeps the object, the end may be far. A program that
    /// wants to see only that the deletion began notes the version in the server's answer instead
    /// ([`wrote`](Self::wrote)).
    pub fn deleted(
        &self,
        owner: &Owner,
        cache: impl Into<FencedCache>,
        key: &ObjectKey,
        uid: &str,
    ) {
        let deleted = Some((key.clone(), uid.into()));
        self.note(owner, cache.into(), ResourceVersion::most_recent(), deleted);
    }

    fn note(
        &self,
        owner: &Owner,
        cache: FencedCache,
        version: ResourceVersion,
        deleted: Option<(ObjectKey, Box<str>)>,
    ) {
        let write = Arc::new(NotedWrite {
            cache,
            version,
            deleted,
            at: self.clock.now(),
        });
        let mut owners = self.owners.lock();
        let writes = owners.entry(owner.clone()).or_default();
        let unused: Vec<_> = if writes.iter().any(|noted| noted.covers(&write)) {
            vec![write]
        } else {
            let older = writes.extract_if(.., |noted| write.covers(noted)).collect();
            writes.push(write);
            older
        };
        drop(owners);
        // After the lock: they may be the last pointers to a cache.
        drop(unused);
    }

    /// Blocks until every cache has seen what the program noted for `owner` before this call, at
    /// most until `deadline`. An owner without writes is seen at once, and so are writes that were
    /// seen before a deadline that has passed. The fence then keeps none of these writes.
    ///
    /// Events, bookmarks and lists bring stores and informers forward. For an object of a manager
    /// the calling thread asks the server if memory is not as new.
    ///
    /// # Errors
    ///
    /// `Timeout` at the deadline, with each cache that has not seen its write, and for how long.
    /// `Stopped`, `Forbidden` or `NotFound` if a cache will not see it: it has ended, or the server
    /// refuses it. The cache's own error is the source. The fence keeps the unseen writes for the
    /// next wait.
    #[doc(alias = "EnsureReady")]
    pub fn wait_until_seen(&self, owner: &Owner, deadline: impl IntoDeadline) -> Result<(), Error> {
        let deadline = deadline.into_deadline(&self.clock);
        let writes = self.owners.lock().get(owner).cloned().unwrap_or_default();
        // Deletions last: a cache that has not seen the creation does not have the object either.
        let (deletions, versions): (Vec<_>, Vec<_>) =
            writes.iter().partition(|write| write.deleted.is_some());
        let mut late = Vec::<(&NotedWrite, Error)>::new();
        for write in versions.into_iter().chain(deletions) {
            let is_behind = |(earlier, _): &(&NotedWrite, Error)| earlier.precedes(write);
            if late.iter().any(is_behind) {
                continue;
            }
            match (write.cache.wait)(write, deadline) {
                Ok(()) => self.seen(owner, write),
                Err(error) => late.push((write, error)),
            }
        }
        let now = self.clock.now();
        let texts: Vec<_> = late.iter().map(|(write, _)| write.text(now)).collect();
        let Some((_, first)) = late.into_iter().next() else {
            return Ok(());
        };
        let kind = Some(first.kind()).filter(|kind| *kind != ErrorKind::NotSynced);
        let kind = kind.unwrap_or(ErrorKind::Timeout);
        Err(Error::new(kind, texts.join("; ")).with_source(first))
    }

    /// Forgets the writes for an owner that is gone. A wait that has begun goes on.
    #[doc(alias = "Clear")]
    pub fn forget(&self, owner: &Owner) {
        let forgotten = self.owners.lock().remove(owner);
        // They may be the last pointers to a cache.
        drop(forgotten);
    }

    /// Returns the owners that have writes which no wait has found seen.
    pub fn owners(&self) -> Vec<Owner> {
        self.owners.lock().keys().cloned().collect()
    }

    /// Takes a write off that was seen, unless a newer one has replaced it.
    fn seen(&self, owner: &Owner, write: &Arc<NotedWrite>) {
        let mut owners = self.owners.lock();
        if let Some(writes) = owners.get_mut(owner) {
            writes.retain(|noted| !Arc::ptr_eq(noted, write));
            if writes.is_empty() {
                owners.remove(owner);
            }
        }
    }
}

impl NotedWrite {
    /// Whether `other` is seen once this is: an older version of the same cache, or the same
    /// deletion.
    fn covers(&self, other: &Self) -> bool {
        self.cache.identity == other.cache.identity
            && self.deleted == other.deleted
            && !self.version.is_older_than(&other.version)
    }

    /// Whether `other` is a deletion that this write of the same cache must be seen before.
    fn precedes(&self, other: &Self) -> bool {
        self.deleted.is_none()
            && other.deleted.is_some()
            && self.cache.identity == other.cache.identity
    }

    fn text(&self, now: Instant) -> String {
        let what = match &self.deleted {
            None => format!("version {}", self.version),
            Some((key, uid)) => format!("the end of {key} ({uid})"),
        };
        let (cache, age) = (&self.cache.name, now.saturating_duration_since(self.at));
        format!("{cache} has not seen {what}, noted {age:.1?} ago")
    }
}

impl<K: Object> From<&Store<K>> for FencedCache {
    fn from(store: &Store<K>) -> Self {
        let held = store.clone();
        Self {
            name: format!("the {} cache", store.name()),
            identity: (store.address(), None),
            wait: Arc::new(move |write, deadline| {
                let Some((key, uid)) = &write.deleted else {
                    return held.wait_until_at_least(&write.version, deadline);
                };
                held.wait_until_gone(key, uid, deadline)
            }),
        }
    }
}

impl<K: Object> From<(&ObjectManager<K>, &ObjectKey)> for FencedCache {
    fn from((manager, key): (&ObjectManager<K>, &ObjectKey)) -> Self {
        let (held, object) = (manager.clone(), key.clone());
        Self {
            name: format!("the manager's {} {key}", K::resource().kind()),
            identity: (manager.address(), Some(key.clone())),
            wait: Arc::new(move |write, deadline| managed(&held, &object, write, deadline)),
        }
    }
}

/// Waits until no read of the manager returns a state of the object from before the write.
fn managed<K: Object>(
    manager: &ObjectManager<K>,
    key: &ObjectKey,
    write: &NotedWrite,
    deadline: Deadline,
) -> Result<(), Error> {
    let deleted = write.deleted.as_ref().map(|(_, uid)| &**uid);
    // The server has no such object, or the manager does not keep it, or it has one that cannot be
    // read, whose uid is not known.
    let is_unknown = |error: &Error| error.kind() == ErrorKind::Undecodable;
    let is_answer = |error: &Error| {
        matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotRegistered)
            || deleted.is_none() && is_unknown(error)
    };
    // Before the first read, so that no change after it is missed.
    let changes = manager.subscribe();
    loop {
        match manager.get_at_least(key.namespace(), key.name(), &write.version, deadline) {
            Ok(object) if deleted != Some(object.uid()) => return Ok(()),
            Err(error) if is_answer(&error) => return Ok(()),
            Err(error) if !is_unknown(&error) => return Err(error),
            Ok(_) | Err(_) => drop(changes.recv_by(deadline)?),
        }
    }
}

debug_of!([] WriteFence, |it| owners: { it.owners.lock().len() }, ..);

debug_of!([] FencedCache, |it| name: it.name, ..);
