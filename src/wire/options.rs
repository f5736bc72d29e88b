//! Decoding options: which fields are skipped, and how large events and items may be.

use crate::error::{Error, ErrorKind};
use crate::object::Object;
use crate::setters::setters;

/// Whether objects keep the two fields that no reader of a cache needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[expect(
    clippy::exhaustive_enums,
    reason = "the fields are skipped or they are kept"
)]
pub enum Trim {
    /// The decoder skips `metadata.managedFields` and the annotation
    /// `kubectl.kubernetes.io/last-applied-configuration`, which make up to half of a real object.
    /// Do not write such an object back to the server.
    ///
    /// The client asks the server to leave out the managed fields. Kubernetes 1.38 can do that;
    /// older servers send them, and the decoder skips them.
    #[default]
    Skip,
    /// The decoder keeps all fields.
    Keep,
}

/// etcd takes 1.5 MiB per object by default. JSON needs at most six bytes for one (`\u0001`), so
/// that is 9 MiB. Servers can be configured for more.
const ITEM_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The largest item, and the envelope of an event around it.
const FRAME_BYTES_MAX: usize = ITEM_BYTES_MAX + 1024;

/// A Secret or a `ConfigMap` may have 1 MiB of values. JSON needs at most six bytes for one, so
/// that is 6 MiB.
const ONE_OBJECT_FRAME_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Thirty times the pods of the largest cluster that Kubernetes is tested with (150,000). In a
/// cache 5,000,000 pods of the smallest size need 13 GB.
pub(crate) const OBJECTS_MAX: usize = 5_000_000;

/// Enough for the pods of the largest cluster, at 14 KiB each. Decoded, large objects take no more
/// memory than their JSON.
const LIST_BYTES_MAX: usize = 2 * 1024 * 1024 * 1024;

/// A list of one object has one item. A server that ignores field selectors sends the whole
/// namespace.
pub(super) const ONE_OBJECT_ITEMS_MAX: usize = 10_000;

/// The option that bounds an object and an item of a list.
pub(super) const ITEM_LIMIT: &str = "item_bytes_max";

/// The error of a text that is too long. It names the option that raises the limit.
pub(super) fn too_large(what: &str, limit: usize, option: &str) -> Error {
    let message =
        format!("{what} is larger than {limit} bytes; DecodeOptions::{option} raises the limit");
    Error::new(ErrorKind::TooLarge, message)
}

/// The error of a list beyond a limit. It names the option that raises the limit.
pub(super) fn list_too_large(limit: usize, what: &str, option: &str) -> Error {
    let message = format!("the list has more than {limit} {what}: DecodeOptions::{option}");
    Error::new(ErrorKind::TooLarge, message)
}

/// Decoding options. The defaults suit a cache.
///
/// # Examples
///
/// ```
/// use kubecache::http::{ClientOptions, DecodeOptions, Trim};
///
/// let decode = DecodeOptions::default()
///     .trim(Trim::Keep)
///     .item_bytes_max(1 << 20);
/// let options = ClientOptions::default().decode(decode);
/// # drop(options);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct DecodeOptions {
    pub(crate) trim: Trim,
    pub(crate) item_bytes_max: usize,
    pub(crate) list_items_max: usize,
    pub(crate) list_bytes_max: usize,
    pub(crate) frame_bytes_max: usize,
    pub(crate) one_object_frame_bytes_max: usize,
}

impl Default for DecodeOptions {
    fn default() -> Self {
        Self {
            trim: Trim::Skip,
            item_bytes_max: ITEM_BYTES_MAX,
            list_items_max: OBJECTS_MAX,
            list_bytes_max: LIST_BYTES_MAX,
            frame_bytes_max: FRAME_BYTES_MAX,
            one_object_frame_bytes_max: ONE_OBJECT_FRAME_BYTES_MAX,
        }
    }
}

setters! { [] DecodeOptions;
    /// Sets whether the fields that only writers need are skipped. Default: [`Trim::Skip`].
    trim(trim: Trim);

    /// Sets the maximum size of an item of a list, in bytes of JSON. Default: 16 MiB.
    ///
    /// A list fails if an item is larger, or if more bytes than this stand between two items.
    item_bytes_max(item_bytes_max: usize);

    /// Sets the maximum number of objects of one collection, from pages, a streamed list and watch
    /// events alike. Default: 5,000,000.
    ///
    /// A store and an informer apply every change of the objects that they hold, and refuse further
    /// objects. Their health then fails, and
    /// [`ReflectorStatus::left_out`](crate::reflector::ReflectorStatus::left_out) has the count.
    /// [`Client::list`](crate::http::Client::list) fails. A manager holds only objects that the
    /// program has referenced, so this does not bound its watches of namespaces.
    ///
    /// If the scope is one object, a list fails if it has more than 10,000 items, or more than
    /// this.
    list_items_max(list_items_max: usize);

    /// Sets the maximum size of a list, all its pages together, or of a streamed list up to its
    /// final bookmark, in bytes of JSON. Default: 2 GiB. A longer list fails, and a cache keeps the
    /// content that it has.
    ///
    /// Watch events do not count: [`frame_bytes_max`](Self::frame_bytes_max) bounds each.
    list_bytes_max(list_bytes_max: usize);

    /// Sets the maximum size of an event of a watch, in bytes of JSON. Default: 16 MiB and 1 KiB. A
    /// larger event fails the watch.
    frame_bytes_max(frame_bytes_max: usize);

    /// Sets the maximum size of an event of a watch of one object, in bytes of JSON. Default: 8
    /// MiB. It never exceeds [`frame_bytes_max`](Self::frame_bytes_max).
    one_object_frame_bytes_max(one_object_frame_bytes_max: usize);
}

impl DecodeOptions {
    /// The options for objects that a program reads itself and may write back: a writable type
    /// keeps all fields (B19).
    pub(crate) fn for_program<K: Object>(&self) -> Self {
        let trim = if K::TRIMMED_ON_GET {
            self.trim
        } else {
            Trim::Keep
        };
        self.clone().trim(trim)
    }
}
