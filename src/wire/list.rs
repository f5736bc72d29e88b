//! Decodes list bodies item by item, each as soon as its last byte has come.

use std::hash::RandomState;
use std::marker::PhantomData;

use super::buffer::{Buffer, Grant};
use super::item::{self, ItemFault};
use super::list_scan::{ListPart, ListScan};
use super::message::{ListPage, Listed};
use super::options::{DecodeOptions, ONE_OBJECT_ITEMS_MAX, list_too_large};
use super::place::Skipped;
use super::reason::protocol;
use super::selection::{Selection, passed_over};
use super::text_version::with_text_version;
use crate::error::{Error, debug_of};
use crate::object::Object;
use crate::sync::Arc;

/// The space for the first read: many lists are one small object.
const READ_BYTES_MIN: usize = 4 * 1024;

/// The space for each read of a long list. More gains nothing.
const READ_BYTES_MAX: usize = 64 * 1024;

/// Decodes the body of a list as it arrives.
///
/// The caller reads into [`space`](Self::space) and passes the number of bytes to
/// [`filled`](Self::filled). At the end of the body it calls [`finish`](Self::finish). The decoder
/// holds one item, and the bytes that were read after it.
pub struct ListDecoder<K> {
    buffer: Buffer,
    scan: ListScan,
    skipped: Skipped,
    selection: Option<Arc<dyn Selection>>,
    unselected: usize,
    /// Makes the versions of the items out of their texts.
    texts: Option<RandomState>,
    /// The length of an earlier item.
    item_bytes: usize,
    item_bytes_max: usize,
    items_max: usize,
    bytes_max: usize,
    /// The length of the list so far, earlier pages included.
    pub(crate) bytes: usize,
    /// The number of bytes that were passed over in the decoded items. The caller may reset it.
    pub(crate) skipped_bytes: usize,
    kind: PhantomData<fn() -> K>,
}

impl<K: Object> ListDecoder<K> {
    /// Creates a decoder of one page. It does not bound the number of items; the caller decides how
    /// many it holds.
    pub fn new(options: &DecodeOptions) -> Self {
        Self {
            buffer: Buffer::new(READ_BYTES_MIN, READ_BYTES_MAX),
            scan: ListScan::new(options.item_bytes_max),
            skipped: item::skipped::<K>(options),
            selection: None,
            unselected: 0,
            texts: None,
            item_bytes: 0,
            item_bytes_max: options.item_bytes_max,
            items_max: usize::MAX,
            bytes_max: options.list_bytes_max,
            bytes: 0,
            skipped_bytes: 0,
            kind: PhantomData,
        }
    }

    /// Creates a decoder of the list of one object. It takes at most 10,000 items, or
    /// [`list_items_max`](DecodeOptions::list_items_max) if that is less.
    pub(crate) fn for_one_object(options: &DecodeOptions) -> Self {
        Self {
            items_max: options.list_items_max.min(ONE_OBJECT_ITEMS_MAX),
            ..Self::new(options)
        }
    }

    /// Passes over the items that `selection` does not select. They count for the limits.
    pub(crate) fn selecting(self, selection: Option<Arc<dyn Selection>>) -> Self {
        Self { selection, ..self }
    }

    /// Gives each item a version made of its text, in place of its own.
    pub(crate) fn versioned_by(self, texts: Option<RandomState>) -> Self {
        Self { texts, ..self }
    }

    /// Makes room for the next call of [`space`](Self::space), within the memory that `grant`
    /// allows.
    ///
    /// # Errors
    ///
    /// The error of `grant`.
    pub(crate) fn reserve(&mut self, grant: Grant<'_>) -> Result<(), Error> {
        self.buffer.reserve(grant)
    }

    /// The space for the next read; never empty.
    pub fn space(&mut self) -> &mut [u8] {
        self.buffer.space()
    }

    /// Notes that the first `count` bytes of the space were filled. Passes each item that is now
    /// whole to `each`.
    ///
    /// A well-formed item that is not a `K` is [`Listed::Undecodable`]. Its key is empty when it
    /// has no name.
    ///
    /// # Errors
    ///
    /// `Protocol` when the body is not JSON, or not a list. `TooLarge` when an item or the list
    /// exceeds its maximum size; the error names the option. The decoder is useless afterwards.
    pub fn filled(&mut self, count: usize, each: &mut dyn FnMut(Listed<K>)) -> Result<(), Error> {
        self.buffer.filled(count);
        self.bytes = self.bytes.saturating_add(count);
        if self.bytes > self.bytes_max {
            return Err(list_too_large(self.bytes_max, "bytes", "list_bytes_max"));
        }
        let resource = K::resource();
        while let Some(part) = self.scan.step(&mut self.buffer, resource.kind())? {
            self.item(part, each)?;
        }
        Ok(())
    }

    /// Decodes an item if all of it has come: at its first byte, or once its end was found.
    fn item(&mut self, part: ListPart, each: &mut dyn FnMut(Listed<K>)) -> Result<(), Error> {
        let pending = self.buffer.pending();
        let item = match part {
            // The whole item is needed to tell whether it is selected, or which version it has.
            ListPart::ItemStart if self.selection.is_some() || self.texts.is_some() => {
                return Ok(());
            }
            ListPart::ItemStart => {
                let bytes = pending.get(..self.item_bytes_max).unwrap_or(pending);
                // Such an item is probably incomplete. Finding that out costs less than decoding
                // its beginning in vain.
                if bytes.len() < self.item_bytes {
                    return Ok(());
                }
                let Ok((object, decoder)) = item::read(bytes, self.skipped) else {
                    return Ok(());
                };
                self.item_bytes = decoder.used();
                self.skipped_bytes = self.skipped_bytes.saturating_add(decoder.skipped_bytes);
                self.scan.pass_item(self.item_bytes);
                self.buffer.take(self.item_bytes);
                Some(Listed::Object(object))
            }
            ListPart::Item(length) => {
                let bytes = pending.get(..length).unwrap_or(pending);
                let is_other = passed_over(self.selection.as_deref(), bytes, &mut false).is_some();
                self.unselected = self.unselected.saturating_add(usize::from(is_other));
                let texts = self.texts.as_ref().filter(|_| !is_other);
                let versioned = texts.and_then(|texts| with_text_version(bytes, texts));
                let bytes = versioned.as_deref().unwrap_or(bytes);
                let item = (!is_other).then(|| {
                    match item::decode(bytes, self.skipped, &mut self.skipped_bytes) {
                        Ok(object) => Ok(Listed::Object(object)),
                        Err(ItemFault::Undecodable(aside) | ItemFault::Foreign { aside, .. }) => {
                            Ok(Listed::from(aside))
                        }
                        Err(ItemFault::Malformed(why)) => {
                            let nth = self.scan.items();
                            let why = format!("item {nth} of the list is not JSON: {why}");
                            Err(protocol(&why))
                        }
                    }
                });
                self.buffer.take(length);
                item.transpose()?
            }
        };
        if self.scan.items() > self.items_max {
            return Err(list_too_large(self.items_max, "items", "list_items_max"));
        }
        item.into_iter().for_each(each);
        Ok(())
    }

    /// Ends the list at the end of the body. Returns its metadata.
    ///
    /// # Errors
    ///
    /// The server's error when the body was a `Status`. `Protocol` when the body was cut off, was
    /// no list, or was a list of another kind or version.
    pub fn finish(self) -> Result<ListPage, Error> {
        let page = self.scan.finish::<K>()?;
        Ok(ListPage {
            unselected: self.unselected,
            ..page
        })
    }

    /// The heap memory held, in bytes.
    pub fn held_bytes(&self) -> usize {
        self.buffer.held().saturating_add(self.scan.held())
    }
}

debug_of!([K] ListDecoder<K>, |it| items: it.scan.items(), ..);
