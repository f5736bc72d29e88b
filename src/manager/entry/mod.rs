//! One referenced object, whichever strategy keeps it: its content, what plain readers find at
//! once, and the reads that ask the server.

pub(super) mod consistent_reads;
pub(super) mod content;
pub(super) mod object_entry;
pub(super) mod read_cache;
pub(crate) mod seed;
