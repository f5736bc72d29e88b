//! Decodes list bodies item by item, each one when its last byte has come.

use std::fmt;
use std::marker::PhantomData;

use super::batch::{self, Batch};
use super::buffer::{Buffer, Grant};
use super::item;
use super::list_scan::ListScan;
use super::message::{ListPage, Listed};
use super::options::{DecodeOptions, list_too_large};
use crate::error::Error;
use crate::object::Object;

/// The room for the first read: many lists are one small object.
const READ_BYTES_MIN: usize = 4 * 1024;

/// The room for each read of a long list. More gains nothing.
const READ_BYTES_MAX: usize = 64 * 1024;

/// Decodes the body of a list as it arrives.
///
/// The caller reads into [`space`](Self::space) and tells [`filled`](Self::filled) how much came.
/// At the end of the body it calls [`finish`](Self::finish). The decoder holds one item and the
/// bytes that were read behind it.
pub struct ListDecoder<K> {
    buffer: Buffer,
    scan: ListScan,
    batch: Batch,
    items_max: usize,
    bytes_max: usize,
    /// The length of the body so far.
    bytes: usize,
    kind: PhantomData<fn() -> K>,
}

impl<K: Object> ListDecoder<K> {
    /// A decoder of one page.
    pub fn new(options: &DecodeOptions) -> Self {
        Self {
            buffer: Buffer::new(READ_BYTES_MIN, READ_BYTES_MAX),
            scan: ListScan::new(item::cutting::<K>(options), options.item_bytes_max),
            batch: Batch::default(),
            items_max: options.list_items_max,
            bytes_max: options.list_bytes_max,
            bytes: 0,
            kind: PhantomData,
        }
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

    /// The room for the next read; never empty.
    pub fn space(&mut self) -> &mut [u8] {
        self.buffer.space()
    }

    /// Tells that the first `count` bytes of the space were filled. Passes the items that are now
    /// whole to `each`.
    ///
    /// A well-formed item that is not a `K` is [`Listed::Undecodable`]. Its key is empty when it
    /// has no name.
    ///
    /// # Errors
    ///
    /// `Protocol` when the body is no JSON or no list. `TooLarge` when an item or the list exceeds
    /// its maximum; the error names the option. The decoder is then of no further use.
    pub fn filled(&mut self, count: usize, each: &mut dyn FnMut(Listed<K>)) -> Result<(), Error> {
        self.buffer.filled(count);
        self.bytes = self.bytes.saturating_add(count);
        if self.bytes > self.bytes_max {
            return Err(list_too_large(self.bytes_max, "bytes", "list_bytes_max"));
        }
        loop {
            match self.scan.step(&mut self.buffer, K::resource().kind()) {
                Ok(Some(_)) if self.scan.items() > self.items_max => {
                    self.hand_over(each)?;
                    return Err(list_too_large(self.items_max, "items", "list_items_max"));
                }
                Ok(Some(length)) => self.item(length, each)?,
                Ok(None) => return self.hand_over(each),
                Err(error) => {
                    self.hand_over(each)?;
                    return Err(error);
                }
            }
        }
    }

    /// So many pending bytes are one item.
    fn item(&mut self, length: usize, each: &mut dyn FnMut(Listed<K>)) -> Result<(), Error> {
        let shape = self.scan.shape();
        let bytes = self.buffer.take(length);
        let fault = match item::secret_data::<K>(bytes, shape) {
            Ok(data) => {
                let consumed = self.buffer.consumed();
                self.batch.add(consumed, length, &shape.cuts, data);
                return Ok(());
            }
            Err(fault) => fault,
        };
        self.batch.decode(
            self.buffer.consumed(),
            self.scan.items().saturating_sub(1),
            each,
        )?;
        each(batch::listed(Err(fault), self.scan.items())?);
        Ok(())
    }

    fn hand_over(&mut self, each: &mut dyn FnMut(Listed<K>)) -> Result<(), Error> {
        self.batch
            .decode(self.buffer.consumed(), self.scan.items(), each)
    }

    /// Ends the list at the end of the body. Returns its metadata.
    ///
    /// # Errors
    ///
    /// The server's error when the body was a `Status`. `Protocol` when the body was cut off, was
    /// no list, or was a list of another kind or version.
    pub fn finish(self) -> Result<ListPage, Error> {
        self.scan.finish::<K>()
    }

    /// The heap memory held, in bytes.
    pub fn held_bytes(&self) -> usize {
        self.buffer
            .held()
            .saturating_add(self.scan.held())
            .saturating_add(self.batch.held())
    }
}

impl<K> fmt::Debug for ListDecoder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListDecoder")
            .field("items", &self.scan.items())
            .finish_non_exhaustive()
    }
}
