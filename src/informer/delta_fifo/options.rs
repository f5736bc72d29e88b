//! How a queue orders and merges what waits in it, and what can be set about it.

use std::fmt;

use crate::clock::Clock;
use crate::error::Error;
use crate::informer::KnownObjects;
use crate::object::{Held, Object};
use crate::sync::Arc;

/// A function that changes each object before it is queued.
pub(super) type Transform<K> =
    Arc<dyn Fn(Arc<Held<K>>) -> Result<Arc<Held<K>>, Error> + Send + Sync>;

/// How what waits is ordered: what a handler behind the queue then sees.
///
/// In every mode no deletion is lost, and the changes of one object come in their order. Each variant holds exactly
/// what its mode can use, so that the combinations at which client-go panics cannot be written down (RQ-11).
#[non_exhaustive]
pub enum QueueMode<K: Object> {
    /// The changes of one object wait together, at the place of the first of them (DF-1 to DF-19).
    ///
    /// A handler sees the changes of one object in a bunch, so an object that changes often is overtaken by others
    /// that changed later, and two deletions in a row are one. Of a list, it sees the objects first and what is gone
    /// last.
    Compressed {
        /// What the consumer holds. Without it only what is queued can be found missing from a list, and a deletion
        /// of what is not queued is left out (DF-5).
        known: Option<Arc<dyn KnownObjects<K>>>,
        /// What the objects of a list become.
        relisted: Relisted,
        /// Whether the server's bookmarks come through the queue too, after everything that was queued before them; of
        /// several in a row, the last.
        bookmarks: bool,
    },
    /// One delta after the other, in the order in which they came (RQ-1 to RQ-9); client-go from 1.33 to 1.35.
    ///
    /// A handler sees every change, across objects too, in the order of the watch. Of a list, it sees what is gone
    /// first, and then the objects in the list's order.
    InOrder {
        /// What the consumer holds.
        known: Arc<dyn KnownObjects<K>>,
        /// Whether the server's bookmarks come through the queue too.
        bookmarks: bool,
    },
    /// As in order, but a list and a resync are one delta each (RQ-10); client-go from 1.36 on.
    ///
    /// The consumer finds out itself what a list went without, and so can exchange its content in one step: a handler
    /// that reads the consumer's store while it is told of a deletion sees the whole new content (CT-6).
    InOrderAtomic {
        /// What the consumer holds, so that the unchanged objects of a list keep their allocation. It decides nothing.
        known: Option<Arc<dyn KnownObjects<K>>>,
        /// Whether the server's bookmarks come through the queue too, so that the consumer's position follows them.
        bookmarks: bool,
    },
}

impl<K: Object> QueueMode<K> {
    /// The view by which the queue finds what a list goes without.
    pub(super) fn known(&self) -> Option<&Arc<dyn KnownObjects<K>>> {
        match self {
            Self::Compressed { known, .. } => known.as_ref(),
            Self::InOrder { known, .. } => Some(known),
            Self::InOrderAtomic { .. } => None,
        }
    }

    /// What the consumer holds, where it is told: there an unchanged object may be found, and the last state of one.
    pub(super) fn view(&self) -> Option<&Arc<dyn KnownObjects<K>>> {
        match self {
            Self::Compressed { known, .. } | Self::InOrderAtomic { known, .. } => known.as_ref(),
            Self::InOrder { known, .. } => Some(known),
        }
    }

    /// Whether the server's bookmarks are queued.
    pub(super) fn bookmarks(&self) -> bool {
        match self {
            Self::Compressed { bookmarks, .. }
            | Self::InOrder { bookmarks, .. }
            | Self::InOrderAtomic { bookmarks, .. } => *bookmarks,
        }
    }
}

/// What the objects of a list become in a compressed queue (DF-8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Relisted {
    /// [`Delta::Replaced`](crate::informer::Delta::Replaced), as in every informer.
    #[default]
    Replaced,
    /// [`Delta::Sync`](crate::informer::Delta::Sync), as before client-go could tell the two apart: the consumer does
    /// not learn which list it was.
    Sync,
}

/// Options of a queue; start from the default and set what differs.
///
/// # Examples
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kubecache::informer::DeltaFifoOptions;
/// use kubecache::object::Held;
///
/// // Keep the names of the settings, not their values.
/// let options = DeltaFifoOptions::default().transform(|object| {
///     Ok(Held::edited(object, |settings: &mut ConfigMap| {
///         settings.data.iter_mut().flat_map(|data| data.values_mut()).for_each(String::clear);
///     }))
/// });
/// # drop(options);
/// ```
#[non_exhaustive]
pub struct DeltaFifoOptions<K: Object> {
    pub(super) clock: Clock,
    pub(super) transform: Option<Transform<K>>,
}

impl<K: Object> DeltaFifoOptions<K> {
    /// Where time comes from. Default: the system.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Changes each object before it is queued: once per object that the server sent, final states included, and not
    /// on what a list or a resync brings up from memory (DF-7, RQ-8). Default: objects are queued as they came.
    ///
    /// It runs on the reflector's thread, under no lock. It must leave namespace and name as they are. An error or a
    /// panic of it leaves the queue as it was, and makes the reflector list again after a backoff.
    #[doc(alias = "SetTransform")]
    #[must_use]
    pub fn transform(
        mut self,
        transform: impl Fn(Arc<Held<K>>) -> Result<Arc<Held<K>>, Error> + Send + Sync + 'static,
    ) -> Self {
        self.transform = Some(Arc::new(transform));
        self
    }
}

/// The clones share the transform.
impl<K: Object> Clone for DeltaFifoOptions<K> {
    fn clone(&self) -> Self {
        Self {
            clock: self.clock.clone(),
            transform: self.transform.clone(),
        }
    }
}

impl<K: Object> Default for DeltaFifoOptions<K> {
    fn default() -> Self {
        Self {
            clock: Clock::system(),
            transform: None,
        }
    }
}

impl<K: Object> fmt::Debug for DeltaFifoOptions<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeltaFifoOptions")
            .field("clock", &self.clock)
            .field("transforms", &self.transform.is_some())
            .finish()
    }
}

impl<K: Object> fmt::Debug for QueueMode<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compressed {
                known,
                relisted,
                bookmarks,
            } => f
                .debug_struct("Compressed")
                .field("known", &known.is_some())
                .field("relisted", relisted)
                .field("bookmarks", bookmarks)
                .finish(),
            Self::InOrder { bookmarks, .. } => f
                .debug_struct("InOrder")
                .field("bookmarks", bookmarks)
                .finish_non_exhaustive(),
            Self::InOrderAtomic { known, bookmarks } => f
                .debug_struct("InOrderAtomic")
                .field("known", &known.is_some())
                .field("bookmarks", bookmarks)
                .finish(),
        }
    }
}
