//! The sources of objects that have no watch of their own: the watches of namespaces, and the
//! poller.

pub(crate) mod namespace;
pub(crate) mod namespace_table;
pub(crate) mod poller;
