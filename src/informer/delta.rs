//! What the queue hands over: one change of one object, all waiting changes of one object, and typed deletions.

use std::fmt;

use crate::informer::Deleted;
use crate::list_watch::{Listed, Undecodable};
use crate::object::{Held, Object, ObjectKey, ResourceVersion};
use crate::reflector::Replacement;
use crate::sync::Arc;

/// One change on its way to the consumer (DF-2).
///
/// Whether an object is new to the consumer is for the consumer's own store to say, not for the type of the delta
/// (CT-4): an object that comes back in a list is `Replaced`, whether it was known or not.
///
/// `Debug` prints types, keys and versions only.
#[expect(
    clippy::exhaustive_enums,
    reason = "a consumer that misses a change goes out of step: it must match all of them"
)]
pub enum Delta<K: Object> {
    /// The watch told of a new object.
    Added(Arc<Held<K>>),
    /// The watch told of a change.
    #[doc(alias = "Modified")]
    Updated(Arc<Held<K>>),
    /// The object stood in a list.
    Replaced {
        /// The object as listed; the one known before, if it has not changed since.
        object: Arc<Held<K>>,
        /// The list it stood in: whoever holds final content judges by it (B18).
        of: Arc<Replacement>,
    },
    /// The object is delivered once more by a resync; nothing changed.
    Sync(Arc<Held<K>>),
    /// The object is gone.
    Deleted(Box<Deletion<K>>),
    /// The object is there, but does not decode (B12).
    Undecodable {
        /// Which object, and why.
        why: Box<Undecodable>,
        /// The list it stood in; `None` when the watch told of it.
        of: Option<Arc<Replacement>>,
    },
    /// A whole list, in [`QueueMode::InOrderAtomic`](super::QueueMode::InOrderAtomic) only (RQ-10).
    ReplacedAll(Box<ReplacedAll<K>>),
    /// A resync of everything known, in [`QueueMode::InOrderAtomic`](super::QueueMode::InOrderAtomic) only (RQ-10).
    SyncAll,
    /// The server's position moved, where asked for: everything up to this version came before (RQ-10).
    Bookmark(ResourceVersion),
}

/// The type of a [`Delta`] (DF-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(
    missing_docs,
    reason = "each stands for the variant of `Delta` of its name"
)]
#[non_exhaustive]
pub enum DeltaType {
    Added,
    Updated,
    Replaced,
    Sync,
    Deleted,
    Undecodable,
    ReplacedAll,
    SyncAll,
    Bookmark,
}

/// What the queue knows of the end of an object: a deletion that cannot be taken for an object (B13).
///
/// A handler gets it as [`Deleted`], which [`deleted`](Self::deleted) makes of it. `Debug` prints key and version only.
#[doc(alias = "DeletedFinalStateUnknown")]
#[doc(alias = "tombstone")]
#[non_exhaustive]
pub struct Deletion<K: Object> {
    /// Which object is gone.
    pub key: ObjectKey,
    /// The object's last state, as far as it is known here; `None` when none that decodes was seen.
    pub last_known: Option<Arc<Held<K>>>,
    /// Whether the server sent `last_known` as the final state. Otherwise a list went without the object, and
    /// `last_known` may be any number of changes behind.
    pub final_state_known: bool,
    /// What the watch said of the final state, where that does not decode (B12).
    pub undecodable: Option<Box<Undecodable>>,
    /// The list that went without the object; `None` when only the watch told of its end.
    ///
    /// Both can be: the watch told, and a list came before that was taken. Whoever refuses what the watch told as old
    /// news has the list's word still (B18).
    pub of: Option<Arc<Replacement>>,
}

/// A whole list as one delta (RQ-10).
#[non_exhaustive]
pub struct ReplacedAll<K: Object> {
    /// Which list it is.
    pub of: Replacement,
    /// The items in the list's order, each key once.
    pub items: Vec<Listed<K>>,
}

impl<K: Object> Delta<K> {
    /// The delta's type.
    pub fn delta_type(&self) -> DeltaType {
        match self {
            Self::Added(_) => DeltaType::Added,
            Self::Updated(_) => DeltaType::Updated,
            Self::Replaced { .. } => DeltaType::Replaced,
            Self::Sync(_) => DeltaType::Sync,
            Self::Deleted(_) => DeltaType::Deleted,
            Self::Undecodable { .. } => DeltaType::Undecodable,
            Self::ReplacedAll(_) => DeltaType::ReplacedAll,
            Self::SyncAll => DeltaType::SyncAll,
            Self::Bookmark(_) => DeltaType::Bookmark,
        }
    }

    /// The object the delta is about, by namespace and name; `None` for those about no single object (DF-3).
    #[doc(alias = "KeyOf")]
    pub fn key(&self) -> Option<ObjectKey> {
        match self {
            Self::Added(object)
            | Self::Updated(object)
            | Self::Replaced { object, .. }
            | Self::Sync(object) => Some(object.key()),
            Self::Deleted(deleted) => Some(deleted.key.clone()),
            Self::Undecodable { why, .. } => Some(why.key.clone()),
            Self::ReplacedAll(_) | Self::SyncAll | Self::Bookmark(_) => None,
        }
    }

    /// The object itself; of a deletion, its last known state.
    pub fn object(&self) -> Option<&Arc<Held<K>>> {
        match self {
            Self::Added(object)
            | Self::Updated(object)
            | Self::Replaced { object, .. }
            | Self::Sync(object) => Some(object),
            Self::Deleted(deleted) => deleted.last_known.as_ref(),
            Self::Undecodable { .. } | Self::ReplacedAll(_) | Self::SyncAll | Self::Bookmark(_) => {
                None
            }
        }
    }

    fn as_deleted(&self) -> Option<&Deletion<K>> {
        match self {
            Self::Deleted(deleted) => Some(deleted),
            Self::Added(_)
            | Self::Updated(_)
            | Self::Replaced { .. }
            | Self::Sync(_)
            | Self::Undecodable { .. }
            | Self::ReplacedAll(_)
            | Self::SyncAll
            | Self::Bookmark(_) => None,
        }
    }

    /// The deletion, if it is one.
    pub(super) fn as_deleted_mut(&mut self) -> Option<&mut Deletion<K>> {
        match self {
            Self::Deleted(deleted) => Some(deleted),
            Self::Added(_)
            | Self::Updated(_)
            | Self::Replaced { .. }
            | Self::Sync(_)
            | Self::Undecodable { .. }
            | Self::ReplacedAll(_)
            | Self::SyncAll
            | Self::Bookmark(_) => None,
        }
    }

    /// The list by which the object is gone, if it is.
    pub(super) fn list(&self) -> Option<&Arc<Replacement>> {
        self.as_deleted()?.of.as_ref()
    }

    /// Whether the object is gone after this.
    pub(super) fn is_deleted(&self) -> bool {
        self.as_deleted().is_some()
    }
}

impl<K: Object> Deletion<K> {
    /// The deletion as handlers are told of it; `None` when no state of the object that decodes was ever seen.
    pub fn deleted(&self) -> Option<Deleted<K>> {
        let last_known = self.last_known.as_ref().map(Arc::clone)?;
        Some(Deleted {
            last_known,
            final_state_known: self.final_state_known,
        })
    }

    /// A deletion the server told of, with the object's final state.
    pub(super) fn seen(key: ObjectKey, object: Arc<Held<K>>) -> Self {
        Self {
            key,
            last_known: Some(object),
            final_state_known: true,
            undecodable: None,
            of: None,
        }
    }

    /// A deletion the server told of, with a final state that does not decode (B12).
    pub(super) fn undecodable(why: Undecodable, last_known: Option<Arc<Held<K>>>) -> Self {
        Self {
            key: why.key.clone(),
            last_known,
            final_state_known: false,
            undecodable: Some(Box::new(why)),
            of: None,
        }
    }

    /// Whether the watch told of it, whatever a list said besides.
    fn is_seen(&self) -> bool {
        self.final_state_known || self.undecodable.is_some()
    }

    /// The version at which the watch told of it.
    fn seen_at(&self) -> ResourceVersion {
        match (&self.undecodable, &self.last_known) {
            (Some(why), _) => why.resource_version.clone(),
            (None, Some(object)) if self.final_state_known => object.resource_version(),
            (None, _) => ResourceVersion::default(),
        }
    }

    /// A list said the same later.
    pub(super) fn lend(&mut self, of: Arc<Replacement>) {
        self.of = strongest(self.of.take(), Some(of));
    }

    /// Whether this stays when `newer` says the same: what the watch told is more than what a list implies, and later
    /// news more than what is repeated (DF-6).
    fn outweighs(&self, newer: &Self) -> bool {
        match (self.is_seen(), newer.is_seen()) {
            (true, false) => true,
            (true, true) => newer.seen_at().is_older_than(&self.seen_at()),
            (false, _) => false,
        }
    }

    /// A deletion that shows by a list without the object.
    pub(super) fn unlisted(
        key: ObjectKey,
        last_known: Option<Arc<Held<K>>>,
        of: &Arc<Replacement>,
    ) -> Self {
        Self {
            key,
            last_known,
            final_state_known: false,
            undecodable: None,
            of: Some(Arc::clone(of)),
        }
    }
}

/// Of two lists that say the same, the one that whoever holds the final content lets pass sooner (B18).
pub(super) fn strongest(
    earlier: Option<Arc<Replacement>>,
    later: Option<Arc<Replacement>>,
) -> Option<Arc<Replacement>> {
    let (Some(earlier), Some(later)) = (&earlier, &later) else {
        return later.or(earlier);
    };
    let is_certain = |of: &Replacement| of.consistent || of.history_expired;
    let older = later
        .resource_version
        .is_older_than(&earlier.resource_version);
    let stays = !is_certain(later) && (is_certain(earlier) || older);
    Some(Arc::clone(if stays { earlier } else { later }))
}

/// The changes of one object that waited together, oldest first; never none (DF-1, DF-3, DF-19).
///
/// In the modes in order it is always one delta (RQ-1). Bookmarks, and the deltas of
/// [`QueueMode::InOrderAtomic`](super::QueueMode::InOrderAtomic) that stand for everything, are about no single object.
pub struct Deltas<K: Object> {
    key: Option<Arc<ObjectKey>>,
    oldest: Delta<K>,
    later: Vec<Delta<K>>,
}

impl<K: Object> Deltas<K> {
    pub(super) fn new(key: Option<Arc<ObjectKey>>, delta: Delta<K>) -> Self {
        Self {
            key,
            oldest: delta,
            later: Vec::new(),
        }
    }

    /// The object they are about; `None` for a delta about no single object (DF-3).
    #[doc(alias = "KeyOf")]
    pub fn key(&self) -> Option<&ObjectKey> {
        self.key.as_deref()
    }

    pub(super) fn shared_key(&self) -> Option<&Arc<ObjectKey>> {
        self.key.as_ref()
    }

    /// The first of the changes.
    pub fn oldest(&self) -> &Delta<K> {
        &self.oldest
    }

    /// The last of the changes: what holds once all of them are applied.
    pub fn newest(&self) -> &Delta<K> {
        self.later.last().unwrap_or(&self.oldest)
    }

    /// How many changes there are: one or more.
    #[expect(
        clippy::len_without_is_empty,
        reason = "there is always at least one delta"
    )]
    pub fn len(&self) -> usize {
        self.later.len().saturating_add(1)
    }

    /// The changes, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Delta<K>> {
        std::iter::once(&self.oldest).chain(&self.later)
    }

    /// Appends a change. Two deletions in a row become one: what the watch told of, or else the newer, with the word of
    /// the lists that went without the object (DF-6). What is left out is returned, to be dropped outside of every lock.
    pub(super) fn push(&mut self, delta: Delta<K>) -> Option<Delta<K>> {
        let newest = self.later.last_mut().unwrap_or(&mut self.oldest);
        match (&mut *newest, delta) {
            (Delta::Deleted(older), Delta::Deleted(mut newer)) => {
                if older.outweighs(&newer) {
                    older.of = strongest(older.of.take(), newer.of.take());
                    return Some(Delta::Deleted(newer));
                }
                newer.of = strongest(older.of.take(), newer.of.take());
                if newer.last_known.is_none() {
                    newer.last_known = older.last_known.take();
                }
                Some(std::mem::replace(newest, Delta::Deleted(newer)))
            }
            (_, delta) => {
                self.later.push(delta);
                None
            }
        }
    }

    /// The last of the changes, to be completed.
    pub(super) fn newest_mut(&mut self) -> &mut Delta<K> {
        self.later.last_mut().unwrap_or(&mut self.oldest)
    }

    /// The last state that decodes of what is there; what a deletion carries may be of an object before it (B18).
    pub(super) fn last_object(&self) -> Option<&Arc<Held<K>>> {
        let mut there = self.iter().rev().filter(|delta| !delta.is_deleted());
        there.find_map(Delta::object)
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
        let mut shown = f.debug_tuple(match self.delta_type() {
            DeltaType::Added => "Added",
            DeltaType::Updated => "Updated",
            DeltaType::Replaced => "Replaced",
            DeltaType::Sync => "Sync",
            DeltaType::Deleted => "Deleted",
            DeltaType::Undecodable => "Undecodable",
            DeltaType::ReplacedAll => "ReplacedAll",
            DeltaType::SyncAll => "SyncAll",
            DeltaType::Bookmark => "Bookmark",
        });
        match self {
            Self::Added(object)
            | Self::Updated(object)
            | Self::Replaced { object, .. }
            | Self::Sync(object) => shown.field(object),
            Self::Deleted(deleted) => shown.field(deleted),
            Self::Undecodable { why, .. } => shown.field(&format_args!("{}", why.key)),
            Self::ReplacedAll(all) => shown.field(&all.items.len()),
            Self::SyncAll => &mut shown,
            Self::Bookmark(version) => shown.field(&format_args!("{version}")),
        };
        shown.finish()
    }
}

impl<K: Object> fmt::Debug for Deletion<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deletion")
            .field("key", &format_args!("{}", self.key))
            .field("last_known", &self.last_known)
            .field("final_state_known", &self.final_state_known)
            .finish_non_exhaustive()
    }
}

impl<K: Object> fmt::Debug for ReplacedAll<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplacedAll")
            .field("of", &self.of)
            .field("items", &self.items.len())
            .finish()
    }
}

impl<K: Object> fmt::Debug for Deltas<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<K: Object> Clone for Deletion<K> {
    fn clone(&self) -> Self {
        Self {
            key: self.key.clone(),
            last_known: self.last_known.clone(),
            final_state_known: self.final_state_known,
            undecodable: self.undecodable.clone(),
            of: self.of.clone(),
        }
    }
}
