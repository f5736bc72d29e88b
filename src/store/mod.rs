//! Stores: readers are many, the writer is one; a replacement is a value that commits or is
//! dropped.
//!
//! What holds: a read sees all or nothing of a replacement. An object goes back to an older version
//! only if the server's history expired, or if a list at the most recent version says so. A wait
//! ends when the content is there, when nothing can fill it any more, or at its deadline. What
//! holds in time: the content follows the server, as far behind as the watch is; `status()` says
//! how it goes. Not promised: that a read right after a write elsewhere sees it.

mod index;
mod lister;
mod mutation_cache;
mod reader;
#[cfg(all(test, shuttle))]
mod schedules;
mod state;
#[cfg(test)]
mod tests;
mod version_guard;
mod wait_until;
mod writer;

pub use index::{Indexers, NAMESPACE_INDEX};
pub use lister::Lister;
pub use mutation_cache::{MutationCache, MutationCacheOptions};
pub use reader::Store;
pub(crate) use state::{Applied, Change};
pub(crate) use version_guard::VersionGuard;
pub use writer::{Staging, StoreWriter};
