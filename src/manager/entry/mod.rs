//! One referenced object of either strategy: its content, and the answers that plain readers find
//! at once.

pub(super) mod content;
pub(super) mod object_entry;
pub(super) mod read_cache;
pub(crate) mod seed;
