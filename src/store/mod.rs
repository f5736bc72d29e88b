//! Stores: many readers, one writer; a replacement is a value that is committed or dropped.
//!
//! A store promises: a read sees all or nothing of a replacement. An object goes back to an older
//! version only if the server's history expired, or if a list at the most recent version says so. A
//! wait ends when the content has come, when nothing can fill the store any more, or at its
//! deadline. In time the content follows the server, as far behind as the watch; `status()` shows
//! the progress. A read right after a write elsewhere need not see that write.

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
