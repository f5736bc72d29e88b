//! One referenced object of either strategy: its content, the answers that plain readers find at
//! once, and the reads that ask the server.

pub(super) mod consistent_reads;
pub(super) mod content;
pub(super) mod object_entry;
pub(super) mod read_cache;
pub(crate) mod seed;
