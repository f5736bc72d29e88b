//! The entries of a queue: changes of objects, lists, and typed deletions.

use std::fmt;

use crate::error::debug_of;
use crate::list_watch::Listed;
use crate::object::{Object, ObjectKey, ResourceVersion, StoredObject};
use crate::reflector::Replacement;
use crate::sync::Arc;

/// One change on its way to the consumer.
///
/// The consumer's own store decides whether an object is new to the consumer, not the delta: each
/// object of a list is `Replaced`, known or not.
///
/// `Debug` prints keys and versions only.
#[expect(
    clippy::exhaustive_enums,
    reason = "a consumer that misses a change goes out of step: it must match all of them"
)]
pub enum Delta<K: Object> {
    /// The watch reported a new object.
    Added(Listed<K>),
    /// The watch reported a change.
    #[doc(alias = "Modified")]
    Updated(Listed<K>),
    /// A list contains the object. This is its state, whatever its version.
    Replaced(Listed<K>),
    /// A resync repeats the object; nothing changed.
    Sync(Arc<StoredObject<K>>),
    /// The object is deleted.
    Deleted(Box<Deletion<K>>),
    /// A whole list, with [`atomic_lists`](super::DeltaFifoOptions::atomic_lists) only.
    ReplacedAll(Box<ReplacedAll<K>>),
    /// A resync of everything known, with
    /// [`atomic_lists`](super::DeltaFifoOptions::atomic_lists) only.
    SyncAll,
    /// The server's position moved: all changes up to this version came before. With
    /// [`bookmarks`](super::DeltaFifoOptions::bookmarks) only.
    Bookmark(ResourceVersion),
}

/// A deletion of an object, with its last known state.
///
/// `Debug` prints key and version only.
#[doc(alias("DeletedFinalStateUnknown", "tombstone"))]
#[non_exhaustive]
pub struct Deletion<K: Object> {
    /// Namespace and name of the object.
    pub key: ObjectKey,
    /// The last state as the watch reported it. `None` when only a list showed that the object is
    /// gone.
    pub seen: Option<Listed<K>>,
    /// The last state that decodes, if the queue or the consumer has one. Without `seen` it may be
    /// any number of changes behind.
    pub last_known: Option<Arc<StoredObject<K>>>,
    /// Whether a list lacked the object. Then the object is gone, whatever its version. A deletion
    /// that only the watch reported may be older than the consumer's state.
    pub unlisted: bool,
}

/// A whole list as one delta.
#[non_exhaustive]
pub struct ReplacedAll<K: Object> {
    /// The version of the list, and how it was read.
    pub of: Replacement,
    /// The items in the list's order. Each key occurs once.
    pub items: Vec<Listed<K>>,
}

/// The changes of one object that waited together, oldest first; never empty.
///
/// In a queue with [`in_order`](super::DeltaFifoOptions::in_order) it is always one delta.
/// Bookmarks, whole lists and resyncs of everything belong to no single object.
pub struct Deltas<K: Object> {
    key: Option<Arc<ObjectKey>>,
    oldest: Delta<K>,
    later: Vec<Delta<K>>,
}

impl<K: Object> Delta<K> {
    /// Returns namespace and name of the delta's object; `None` if it belongs to no single object.
    #[doc(alias = "KeyOf")]
    pub fn key(&self) -> Option<ObjectKey> {
        match self {
            Self::Added(item) | Self::Updated(item) | Self::Replaced(item) => Some(item.key()),
            Self::Sync(object) => Some(object.key()),
            Self::Deleted(deletion) => Some(deletion.key.clone()),
            Self::ReplacedAll(_) | Self::SyncAll | Self::Bookmark(_) => None,
        }
    }

    /// Returns the object, if it decodes. For a deletion, that is its last known state.
    pub fn object(&self) -> Option<&Arc<StoredObject<K>>> {
        match self {
            Self::Added(item) | Self::Updated(item) | Self::Replaced(item) => item.decoded(),
            Self::Sync(object) => Some(object),
            Self::Deleted(deletion) => deletion.last_known.as_ref(),
            Self::ReplacedAll(_) | Self::SyncAll | Self::Bookmark(_) => None,
        }
    }

    /// Whether the delta deletes its object.
    pub fn is_deletion(&self) -> bool {
        matches!(self, Self::Deleted(_))
    }

    /// How many watch events it counts for, and how many objects of a list or resync, against the
    /// two bounds of a queue.
    pub(super) fn counts(&self) -> (usize, usize) {
        match self {
            Self::Added(_) | Self::Updated(_) => (1, 0),
            Self::Deleted(deletion) if deletion.seen.is_some() => (1, 0),
            Self::Replaced(_) | Self::Sync(_) | Self::Deleted(_) => (0, 1),
            Self::ReplacedAll(list) => (0, list.items.len()),
            Self::SyncAll | Self::Bookmark(_) => (0, 0),
        }
    }

    pub(super) fn is_bookmark(&self) -> bool {
        matches!(self, Self::Bookmark(_))
    }
}

impl<K: Object> Deletion<K> {
    pub(super) fn seen(key: ObjectKey, object: Listed<K>) -> Self {
        Self {
            key,
            last_known: object.decoded().map(Arc::clone),
            seen: Some(object),
            unlisted: false,
        }
    }

    /// Whether `last_known` is the state in which the object was deleted.
    pub fn final_state_known(&self) -> bool {
        let seen = self.seen.as_ref();
        seen.is_some_and(|object| object.decoded().is_some())
    }

    /// Whether this stays when `newer` reports the same end. An event outweighs a list's
    /// implication, and a repeated event does not replace a later one.
    fn outweighs(&self, newer: &Self) -> bool {
        self.seen.as_ref().is_some_and(|older| {
            let newer = newer.seen.as_ref().map(Listed::resource_version);
            newer.is_none_or(|newer| newer.is_older_than(&older.resource_version()))
        })
    }

    /// Merges a `newer` deletion of the same object into this one; returns the one that is dropped.
    fn merge(&mut self, mut newer: Self) -> Self {
        let unlisted = self.unlisted || newer.unlisted;
        if !self.outweighs(&newer) {
            newer.last_known = newer.last_known.take().or_else(|| self.last_known.clone());
            std::mem::swap(self, &mut newer);
        }
        self.unlisted = unlisted;
        newer
    }
}

impl<K: Object> Deltas<K> {
    pub(super) fn new(key: Option<Arc<ObjectKey>>, delta: Delta<K>) -> Self {
        Self {
            key,
            oldest: delta,
            later: Vec::new(),
        }
    }

    /// Returns namespace and name of the object; `None` if the delta belongs to no single object.
    #[doc(alias = "KeyOf")]
    pub fn key(&self) -> Option<&ObjectKey> {
        self.key.as_deref()
    }

    pub(super) fn shared_key(&self) -> Option<&Arc<ObjectKey>> {
        self.key.as_ref()
    }

    /// Returns the last of the changes.
    pub fn newest(&self) -> &Delta<K> {
        self.later.last().unwrap_or(&self.oldest)
    }

    pub(super) fn newest_mut(&mut self) -> &mut Delta<K> {
        self.later.last_mut().unwrap_or(&mut self.oldest)
    }

    /// Returns the changes, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Delta<K>> {
        std::iter::once(&self.oldest).chain(&self.later)
    }

    /// Appends a change; two deletions in a row become one (DF-6), and of two bookmarks the later
    /// stays. Returns the dropped one, for the caller to drop without a lock.
    pub(super) fn push(&mut self, delta: Delta<K>) -> Option<Delta<K>> {
        match (self.newest_mut(), delta) {
            (Delta::Deleted(older), Delta::Deleted(newer)) => {
                Some(Delta::Deleted(Box::new(older.merge(*newer))))
            }
            (Delta::Bookmark(older), Delta::Bookmark(newer)) => {
                *older = newer;
                None
            }
            (_, delta) => {
                self.later.push(delta);
                None
            }
        }
    }

    /// The last state in these deltas that decodes. A deletion may carry an earlier object (B18).
    pub(super) fn last_object(&self) -> Option<&Arc<StoredObject<K>>> {
        let mut there = self.iter().rev().filter(|delta| !delta.is_deletion());
        there.find_map(Delta::object)
    }

    /// Adds the last state to deletions whose final state does not decode (B12): from these deltas,
    /// or else from `look_up`.
    pub(super) fn complete(
        &mut self,
        look_up: impl Fn(&ObjectKey) -> Option<Arc<StoredObject<K>>>,
    ) {
        let mut before = None;
        for delta in std::iter::once(&mut self.oldest).chain(&mut self.later) {
            if let Delta::Deleted(deletion) = delta {
                if deletion.seen.is_some() && deletion.last_known.is_none() {
                    deletion.last_known = before.unwrap_or_else(|| look_up(&deletion.key));
                }
                before = Some(None);
            } else if let Some(object) = delta.object() {
                before = Some(Some(Arc::clone(object)));
            }
        }
    }
}

impl<K: Object> IntoIterator for Deltas<K> {
    type Item = Delta<K>;
    type IntoIter = std::iter::Chain<std::iter::Once<Delta<K>>, std::vec::IntoIter<Delta<K>>>;

    fn into_iter(self) -> Self::IntoIter {
        std::iter::once(self.oldest).chain(self.later)
    }
}

impl<K: Object> fmt::Debug for Delta<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Added(object) => f.debug_tuple("Added").field(object).finish(),
            Self::Updated(object) => f.debug_tuple("Updated").field(object).finish(),
            Self::Replaced(object) => f.debug_tuple("Replaced").field(object).finish(),
            Self::Sync(object) => f.debug_tuple("Sync").field(object).finish(),
            Self::Deleted(deletion) => f.debug_tuple("Deleted").field(deletion).finish(),
            Self::ReplacedAll(all) => f.debug_tuple("ReplacedAll").field(all).finish(),
            Self::SyncAll => f.write_str("SyncAll"),
            Self::Bookmark(version) => f.debug_tuple("Bookmark").field(version).finish(),
        }
    }
}

debug_of!([K: Object] Deletion<K>, |it|
    key: format_args!("{}", it.key), last_known: it.last_known,
    final_state_known: it.final_state_known(), unlisted: it.unlisted, ..);

debug_of!([K: Object] ReplacedAll<K>, |it| of: it.of, items: it.items.len());

impl<K: Object> fmt::Debug for Deltas<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
