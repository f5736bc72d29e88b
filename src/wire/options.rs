//! How bytes become objects: what is skipped, and how large an event or an item may be.

use crate::error::{Error, ErrorKind};

/// What becomes of the two fields that no reader of a cache needs (B19).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[expect(
    clippy::exhaustive_enums,
    reason = "the fields are skipped or they are kept"
)]
pub enum Trim {
    /// `metadata.managedFields` and the annotation `kubectl.kubernetes.io/last-applied-configuration` are skipped
    /// while decoding: up to half of a real object. Such an object is not for writing back.
    #[default]
    Skip,
    /// Everything the server sent is decoded.
    Keep,
}

/// etcd takes 1.5 MiB per object by default, and JSON writes a byte as at most six (`\u0001`): 9 MiB. Servers can be
/// configured for more.
const ITEM_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The largest item, and the envelope of an event around it.
const FRAME_BYTES_MAX: usize = ITEM_BYTES_MAX + 1024;

/// A Secret or a `ConfigMap` may have 1 MiB of values, and JSON writes a byte as at most six: 6
/// MiB.
const ONE_OBJECT_FRAME_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Three times the pods of the largest cluster that Kubernetes is tested with (150,000). A server that sends
/// pods without end, each of them as small as can be, has made a cache hold 1.3 GB of them by then.
const LIST_ITEMS_MAX: usize = 500_000;

/// As many pods of 14 KiB as the largest cluster has; decoded, large objects take no more room than their JSON.
const LIST_BYTES_MAX: usize = 2 * 1024 * 1024 * 1024;

/// A list of one object has one item. A server that passes over field selectors sends the namespace instead, and the
/// others are put aside as they come.
const ONE_OBJECT_ITEMS_MAX: usize = 10_000;

/// A list beyond a limit, which an option raises.
pub(super) fn list_too_large(limit: usize, what: &str, option: &str) -> Error {
    let message = format!("the list has more than {limit} {what}: DecodeOptions::{option}");
    Error::new(ErrorKind::TooLarge, message)
}

/// How bytes become objects. The defaults suit a cache.
///
/// # Examples
///
/// ```
/// use kubecache::http::{DecodeOptions, Trim};
///
/// let mut options = DecodeOptions::default();
/// options.trim = Trim::Keep;
/// options.item_bytes_max = 1 << 20;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DecodeOptions {
    /// Whether the fields only writers need are skipped; by default they are.
    pub trim: Trim,
    /// The largest item of a list, in bytes of JSON; by default 16 MiB. A larger one fails the list, and so does
    /// as much of anything else between two items.
    pub item_bytes_max: usize,
    /// The most items of one page of a list, and of a streamed list up to its final bookmark; by default 500,000, and
    /// never more than 10,000 where the scope is one object. One more fails the list. Servers may answer with more
    /// than was asked for, so no request's limit binds.
    pub list_items_max: usize,
    /// The longest body of one page of a list, and of a streamed list up to its final bookmark, in bytes of JSON; by
    /// default 2 GiB. A longer one fails the list.
    pub list_bytes_max: usize,
    /// The largest event of a watch, in bytes of JSON; by default 16 MiB and 1 KiB. A larger one
    /// fails the watch.
    pub frame_bytes_max: usize,
    /// The same where the scope is one object; by default 8 MiB, and never more than
    /// `frame_bytes_max`.
    pub one_object_frame_bytes_max: usize,
}

impl Default for DecodeOptions {
    fn default() -> Self {
        Self {
            trim: Trim::Skip,
            item_bytes_max: ITEM_BYTES_MAX,
            list_items_max: LIST_ITEMS_MAX,
            list_bytes_max: LIST_BYTES_MAX,
            frame_bytes_max: FRAME_BYTES_MAX,
            one_object_frame_bytes_max: ONE_OBJECT_FRAME_BYTES_MAX,
        }
    }
}

impl DecodeOptions {
    /// The same for the list of one object by its name.
    pub(crate) fn for_one_object(&self) -> Self {
        Self {
            list_items_max: self.list_items_max.min(ONE_OBJECT_ITEMS_MAX),
            ..self.clone()
        }
    }
}
