//! Bytes to vocabulary: watch events, list bodies, single objects. Owns no socket, no thread, no
//! clock.
//!
//! A decoder offers room to read into, is told how much came, and hands over what is whole. It holds what is not
//! yet whole and no more, up to the limits of its [`DecodeOptions`]; whatever the bytes are, it does not panic.

mod batch;
mod buffer;
mod event;
mod frame;
mod item;
mod list;
mod list_scan;
mod members;
mod message;
mod options;
mod reason;
mod scan;
mod secret_data;
#[cfg(test)]
mod tests;
mod whole;
mod wiped;

pub(crate) use buffer::{Buffer, Growth};
pub use event::EventDecoder;
pub use list::ListDecoder;
pub use message::{EventKind, ListPage, Listed, ObjectEvent, Undecodable, WatchEvent};
pub use options::{DecodeOptions, Trim};
pub(crate) use whole::{decode_object, decode_status};
pub(crate) use wiped::Wiped;
