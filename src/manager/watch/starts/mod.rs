//! How runs begin: by name, with the watch of a namespace, or as polls where there is no room.

mod by_budget;
mod by_namespace;
pub(crate) mod launch;
