//! Complete items, moved together so that one parser reads them all.
//!
//! A parser per item would allocate its scratch buffer anew for each item. That costs a list of
//! `ConfigMap`s a seventh of its time.

use super::item::{self, Fault};
use super::message::Listed;
use super::scan::Span;
use super::secret_data::SecretData;
use crate::error::{Error, ErrorKind};
use crate::object::{Object, StoredObject};
use crate::sync::Arc;

/// A gap between two items up to which it costs less to blank it than to move the second one.
const GAP_MAX: usize = 64;

/// Whole items that stand behind each other, with nothing but white space in between.
#[derive(Default)]
pub(super) struct Batch {
    start: usize,
    /// Where each item ends.
    ends: Vec<usize>,
    /// What was cut out of each and is decoded.
    data: Vec<SecretData>,
}

impl Batch {
    /// Adds the item that the last `length` bytes of `consumed` are, without its cuts, of which
    /// `data` was decoded.
    ///
    /// The bytes behind the items of the batch are given up.
    pub(super) fn add(
        &mut self,
        consumed: &mut [u8],
        length: usize,
        cuts: &[Span],
        data: SecretData,
    ) {
        self.data.push(data);
        let item = consumed.len().saturating_sub(length);
        let mut to = match self.ends.last() {
            None => {
                self.start = item;
                item
            }
            Some(&end) if item.saturating_sub(end) > GAP_MAX => end,
            Some(&end) => {
                consumed.get_mut(end..item).unwrap_or_default().fill(b' ');
                item
            }
        };
        let mut from = item;
        for cut in cuts {
            let until = item.saturating_add(cut.start);
            to = shift(consumed, from, until, to);
            from = item.saturating_add(cut.end);
        }
        let end = consumed.len();
        self.ends.push(shift(consumed, from, end, to));
    }

    /// Decodes the items and empties the batch. `nth` is the number of the last item in its list,
    /// for error texts.
    pub(super) fn decode<K: Object>(
        &mut self,
        consumed: &[u8],
        nth: usize,
        each: &mut dyn FnMut(Listed<K>),
    ) -> Result<(), Error> {
        let mut ends = self.ends.iter().copied().peekable();
        let mut apart = self.data.drain(..);
        let mut start = self.start;
        while ends.peek().is_some() {
            let parsed_from = start;
            let rest = consumed.get(start..).unwrap_or_default();
            let mut parser = serde_json::Deserializer::from_slice(rest).into_iter::<K>();
            while let Some(end) = ends.next() {
                let parsed = parser.next();
                let whole = parsed_from.saturating_add(parser.byte_offset()) == end;
                let json = consumed.get(start..end).unwrap_or_default();
                start = end;
                let data = apart.next().unwrap_or_default();
                if let Some(Ok(object)) = parsed
                    && whole
                    && item::has_name(&object)
                {
                    each(Listed::Object(item::hold(object, data)));
                } else {
                    // The item is decoded alone for its error, and the parser starts again behind
                    // it.
                    each(alone(json, data, nth.saturating_sub(ends.len()))?);
                    break;
                }
            }
        }
        drop(apart);
        self.ends.clear();
        Ok(())
    }

    /// The memory held, in bytes.
    pub(super) fn held(&self) -> usize {
        let ends = self.ends.capacity().saturating_mul(size_of::<usize>());
        let data = self.data.capacity();
        ends.saturating_add(data.saturating_mul(size_of::<SecretData>()))
    }
}

/// Moves bytes towards the front; where the next ones go.
fn shift(bytes: &mut [u8], from: usize, until: usize, to: usize) -> usize {
    if from != to {
        bytes.copy_within(from..until, to);
    }
    to.saturating_add(until.saturating_sub(from))
}

#[cold]
fn alone<K: Object>(json: &[u8], data: SecretData, nth: usize) -> Result<Listed<K>, Error> {
    listed(item::decode_json(json, data), nth)
}

/// What an item came to.
pub(super) fn listed<K: Object>(
    decoded: Result<Arc<StoredObject<K>>, Fault>,
    nth: usize,
) -> Result<Listed<K>, Error> {
    match decoded {
        Ok(object) => Ok(Listed::Object(object)),
        Err(Fault::Undecodable(aside) | Fault::Foreign { aside, .. }) => Ok(Listed::from(aside)),
        Err(Fault::Malformed(why)) => Err(Error::new(
            ErrorKind::Protocol,
            format!("item {nth} of the list is not JSON: {why}"),
        )),
    }
}
