//! Decodes watch events, list bodies and single objects. It owns no socket, no thread and no clock.
//!
//! The caller reads into a decoder's space, passes it the number of bytes, and gets the complete
//! items. A decoder holds only incomplete items, up to the limits of its [`DecodeOptions`]. No
//! input makes it panic.

mod buffer;
mod compact;
mod event;
mod frame;
mod item;
mod json;
mod json_copy;
mod json_text;
mod list;
mod list_scan;
mod members;
mod message;
mod metadata;
mod options;
mod place;
mod plain;
mod reason;
mod scan;
mod secret_data;
mod selection;
mod shrink;
#[cfg(test)]
mod tests;
mod text_version;
mod time;
mod verbatim;
mod wiped;

pub(crate) use buffer::{Buffer, Growth};
pub use compact::{Compact, Dynamic, undecodable_reads};
pub use event::EventDecoder;
pub(crate) use item::{decode_object, decode_status};
pub use list::ListDecoder;
pub use message::{EventKind, ListPage, Listed, ObjectEvent, Undecodable, WatchEvent};
pub use metadata::Metadata;
pub(crate) use options::OBJECTS_MAX;
pub use options::{DecodeOptions, Trim};
pub(crate) use plain::{NotOfType, PlainObject};
pub use selection::Selection;
#[cfg(test)]
pub(crate) use tests::steps;
pub(crate) use time::time;
pub(crate) use wiped::Wiped;
