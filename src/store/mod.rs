//! Stores: readers are many, the writer is one; a replacement is a value that commits or is dropped.

mod floor;

pub use floor::{Floor, Identity};
