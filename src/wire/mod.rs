//! Bytes to vocabulary and back: frames, list bodies, watch events. Owns no socket, no thread, no clock.

mod message;

pub use message::{ListPage, Listed, Undecodable, WatchEvent};
