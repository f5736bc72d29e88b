//! What a streamed list may add up to: as many items and bytes as a list that comes in one body.

use super::message::{EventKind, WatchEvent};
use super::options::{self, DecodeOptions};
use crate::error::Error;
use crate::object::Object;

/// The initial events of one watch, up to the bookmark that ends them.
pub(super) struct InitialEvents {
    items_max: usize,
    bytes_max: usize,
    items: usize,
    ended: bool,
}

impl InitialEvents {
    pub(super) fn new(options: &DecodeOptions) -> Self {
        Self {
            items_max: options.list_items_max,
            bytes_max: options.list_bytes_max,
            items: 0,
            ended: false,
        }
    }

    /// So many bytes of the stream were used up so far.
    pub(super) fn used(&self, bytes: usize) -> Result<(), Error> {
        if bytes > self.bytes_max && !self.ended {
            return Err(options::list_too_large(
                self.bytes_max,
                "bytes",
                "list_bytes_max",
            ));
        }
        Ok(())
    }

    /// An event came. Each that puts an object in counts: who tells them apart by key would have to
    /// keep the keys.
    pub(super) fn event<K: Object>(&mut self, event: &WatchEvent<K>) -> Result<(), Error> {
        match event {
            WatchEvent::Object(event) if event.kind != EventKind::Deleted => {
                self.items = self.items.saturating_add(1);
            }
            WatchEvent::Bookmark {
                initial_events_end, ..
            } => self.ended |= initial_events_end,
            WatchEvent::Object(_) | WatchEvent::Error(_) | WatchEvent::Skipped { .. } => {}
        }
        if self.items > self.items_max && !self.ended {
            return Err(options::list_too_large(
                self.items_max,
                "items",
                "list_items_max",
            ));
        }
        Ok(())
    }
}
