//! Objects that a cache keeps as JSON text and decodes when they are read.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::json::{Decoder, Skipped};
use super::json_copy::JsonCopy;
use super::object_text::ObjectText;
use super::options::{DecodeOptions, Trim};
use super::whole::decode_object;
use crate::error::{Error, ErrorKind};
use crate::object::{Object, Resource, StoredObject};
use crate::sync::Arc;

/// Reads of fields and objects that failed, in this process.
static UNDECODABLE_READS: AtomicU64 = AtomicU64::new(0);

/// An object that is kept as JSON text and decoded on each read, so that it takes less memory.
///
/// Use it in place of `K` wherever objects are kept or delivered: in a
/// [`Store`](crate::store::Store), an informer, a manager, or with
/// [`Client::list`](crate::http::Client::list). Name, namespace, uid, version and labels can be
/// read at once. [`field`](Self::field) reads one more field, and [`get`](Self::get) decodes the
/// whole object.
///
/// The text has no managed fields and no last-applied annotation, unless the client keeps them
/// ([`Trim::Keep`](crate::http::Trim)). It is overwritten when the object is dropped.
///
/// # Examples
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use kubecache::{Compact, object::Object};
///
/// let json = br#"{"metadata":{"name":"web","namespace":"shop","labels":{"app":"web"}},
///     "spec":{"nodeName":"node-1","containers":[]}}"#;
/// let pod = serde_json::from_slice::<Compact<Pod>>(json)?;
/// assert_eq!((pod.name(), pod.label("app")), ("web", Some("web")));
/// assert_eq!(pod.field::<&str>("/spec/nodeName")?, Some("node-1"));
/// assert!(pod.get()?.spec.is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Compact<K> {
    text: ObjectText,
    kind: PhantomData<fn() -> K>,
}

impl<K: Object> Compact<K> {
    /// Decodes the object anew, on the calling thread. Does not block.
    ///
    /// # Errors
    ///
    /// [`Undecodable`](crate::ErrorKind::Undecodable) names the object and the field that is not as
    /// in a `K`. Each such read counts in [`undecodable_reads`].
    pub fn get(&self) -> Result<Arc<StoredObject<K>>, Error> {
        let options = DecodeOptions::default()
            .trim(Trim::Keep)
            .item_bytes_max(usize::MAX);
        counted(decode_object(self.text.bytes(), &options, &mut 0))
    }

    /// Reads the field at a JSON pointer; `None` if the object has none there, or null.
    ///
    /// `T` may borrow, as `&str` does. Such a read fails where the JSON has escapes in the text; a
    /// `String` or a `Cow` takes those too.
    ///
    /// # Errors
    ///
    /// [`Undecodable`](crate::ErrorKind::Undecodable) if the field is not a `T`, or if the pointer
    /// has text and does not begin with a slash. Each such read counts in [`undecodable_reads`].
    pub fn field<'a, T: Deserialize<'a>>(&'a self, pointer: &str) -> Result<Option<T>, Error> {
        field(&self.text, K::resource().kind(), pointer)
    }

    /// The text of the object, as JSON. A number of more than 64 bits is rounded.
    pub fn json(&self) -> &[u8] {
        self.text.bytes()
    }
}

/// An object of a type that is known at run time only, kept as JSON text.
///
/// It stands for any resource of a [`Client`](crate::http::Client) that was made by
/// [`with_resource`](crate::http::Client::with_resource), such as one of a CRD. As text it takes
/// as little memory as [`Compact`].
///
/// # Examples
///
/// ```
/// use kubecache::{Dynamic, object::Object};
///
/// let json = br#"{"kind":"Rack","metadata":{"name":"r1"},"spec":{"units":42}}"#;
/// let rack = serde_json::from_slice::<Dynamic>(json)?;
/// assert_eq!(rack.name(), "r1");
/// assert_eq!(rack.field("/spec/units")?, Some(42));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Dynamic(ObjectText);

impl Dynamic {
    /// Reads the field at a JSON pointer; `None` if the object has none there, or null. The empty
    /// pointer reads the whole object.
    ///
    /// # Errors
    ///
    /// As [`Compact::field`].
    pub fn field<'a, T: Deserialize<'a>>(&'a self, pointer: &str) -> Result<Option<T>, Error> {
        let kind = self.0.field::<&str>("/kind").ok().flatten();
        field(&self.0, kind.unwrap_or("object"), pointer)
    }

    /// The text of the object, as JSON. A number of more than 64 bits is rounded.
    pub fn json(&self) -> &[u8] {
        self.0.bytes()
    }
}

/// How many reads of [`Compact`] and [`Dynamic`] objects have failed in this process.
pub fn undecodable_reads() -> u64 {
    UNDECODABLE_READS.load(Ordering::Relaxed)
}

fn field<'a, T: Deserialize<'a>>(
    text: &'a ObjectText,
    kind: &str,
    pointer: &str,
) -> Result<Option<T>, Error> {
    counted(text.field(pointer).map_err(|why| {
        let key = crate::object::ObjectKey::new(text.namespace(), text.name());
        let text = format!("{kind} {key} does not decode at {pointer}: {why}");
        Error::new(ErrorKind::Undecodable, text)
    }))
}

fn counted<T>(read: Result<T, Error>) -> Result<T, Error> {
    read.inspect_err(|_error| {
        UNDECODABLE_READS.fetch_add(1, Ordering::Relaxed);
    })
}

/// What both have of [`Object`]: all but the resource.
macro_rules! object_of_text {
    ($text:tt) => {
        fn name(&self) -> &str {
            self.$text.name()
        }

        fn namespace(&self) -> &str {
            self.$text.namespace()
        }

        fn uid(&self) -> &str {
            self.$text.uid()
        }

        fn version(&self) -> &str {
            self.$text.version()
        }

        fn label(&self, name: &str) -> Option<&str> {
            self.$text.label(name)
        }

        fn creation_timestamp(&self) -> Option<Time> {
            self.$text.field("/metadata/creationTimestamp").ok()?
        }

        fn trim(&mut self) {
            if !self.$text.is_untrimmed() {
                return;
            }
            let skipped = Skipped {
                trim: true,
                secret: false,
                rest: Self::METADATA_ONLY,
            };
            let trimmed = Decoder::of_object(self.$text.bytes(), skipped).decode::<Self>();
            // What was decoded once is decoded again.
            if let Ok(trimmed) = trimmed {
                *self = trimmed;
            }
        }
    };
}

impl<K: Object> Object for Compact<K> {
    const METADATA_ONLY: bool = K::METADATA_ONLY;
    const TRIMMED_ON_GET: bool = true;

    fn resource() -> Resource {
        K::resource()
    }

    object_of_text!(text);
}

impl Object for Dynamic {
    const TRIMMED_ON_GET: bool = true;

    fn resource() -> Resource {
        Resource::any()
    }

    object_of_text!(0);
}

impl<K> From<ObjectText> for Compact<K> {
    fn from(text: ObjectText) -> Self {
        Self {
            text,
            kind: PhantomData,
        }
    }
}

impl From<ObjectText> for Dynamic {
    fn from(text: ObjectText) -> Self {
        Self(text)
    }
}

fn read<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectText, D::Error> {
    let json = JsonCopy::of(from)?;
    ObjectText::new(json.bytes()).map_err(D::Error::custom)
}

impl<'de, K> Deserialize<'de> for Compact<K> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        read(from).map(Self::from)
    }
}

impl<'de> Deserialize<'de> for Dynamic {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        read(from).map(Self::from)
    }
}

impl<K> Clone for Compact<K> {
    fn clone(&self) -> Self {
        Self::from(self.text.clone())
    }
}

impl Clone for Dynamic {
    fn clone(&self) -> Self {
        Self::from(self.0.clone())
    }
}

impl<K: Object> fmt::Debug for Compact<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.version();
        write!(f, "{} {} @{version}", K::resource().kind(), self.key())
    }
}

impl fmt::Debug for Dynamic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} @{}", self.key(), self.version())
    }
}
