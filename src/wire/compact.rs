//! Objects that a cache keeps as JSON text and decodes when they are read.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::de::{self, Error as _, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::item::decode_object;
use super::json::Decoder;
use super::json_copy::JsonCopy;
use super::members::{find, members_of};
use super::options::{DecodeOptions, Trim};
use super::place::Skipped;
use super::scan::{Span, inner, spells};
use super::verbatim::{VERBATIM, Verbatim};
use super::wiped::Wiped;
use crate::error::{Error, ErrorKind, clone_of};
use crate::object::wipe::LAST_APPLIED;
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
    /// [`Undecodable`](crate::ErrorKind::Undecodable) names the object and the field that does not
    /// fit a `K`. Each such read counts in [`undecodable_reads`].
    pub fn get(&self) -> Result<Arc<StoredObject<K>>, Error> {
        let options = DecodeOptions::default()
            .trim(Trim::Keep)
            .item_bytes_max(usize::MAX);
        counted(decode_object(&self.text.json, &options, &mut 0))
    }

    /// Reads the field at a JSON pointer; `None` if the object has none there, or null.
    ///
    /// `T` may borrow, as `&str` does. Such a read fails if the text has JSON escapes; a `String`
    /// or a `Cow` takes those too.
    ///
    /// # Errors
    ///
    /// [`Undecodable`](crate::ErrorKind::Undecodable) if the field is not a `T`, or if a pointer
    /// that is not empty does not begin with a slash. Each such read counts in
    /// [`undecodable_reads`].
    pub fn field<'a, T: Deserialize<'a>>(&'a self, pointer: &str) -> Result<Option<T>, Error> {
        field(&self.text, K::resource().kind(), pointer)
    }

    /// The text of the object, as the server sent it.
    pub fn json(&self) -> &[u8] {
        &self.text.json
    }
}

/// An object of a type that is known only at run time, kept as JSON text.
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
#[derive(Clone)]
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

    /// The text of the object, as the server sent it.
    pub fn json(&self) -> &[u8] {
        &self.0.json
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
        let key = crate::object::ObjectKey::new(text.text(text.namespace), text.text(text.name));
        let text = format!("{kind} {key} does not decode at {pointer}: {why}");
        Error::new(ErrorKind::Undecodable, text)
    }))
}

fn counted<T>(read: Result<T, Error>) -> Result<T, Error> {
    read.inspect_err(|_error| {
        UNDECODABLE_READS.fetch_add(1, Ordering::Relaxed);
    })
}

/// The methods of [`Object`] that both types share: all but the resource.
macro_rules! object_of_text {
    ($text:tt) => {
        fn name(&self) -> &str {
            self.$text.text(self.$text.name)
        }

        fn namespace(&self) -> &str {
            self.$text.text(self.$text.namespace)
        }

        fn uid(&self) -> &str {
            self.$text.text(self.$text.uid)
        }

        fn resource_version_text(&self) -> &str {
            self.$text.text(self.$text.version)
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
            let trimmed = Decoder::of_object(&self.$text.json, skipped).decode::<Self>();
            // The object decoded once, so it decodes again.
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
        // It stands for every resource: no group, version or kind.
        Resource::new("", "", "objects", "")
    }

    object_of_text!(0);
}

/// Takes the text as it stands from the decoder of this crate, and what any other one reads.
struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = ObjectText;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_byte_buf<E: de::Error>(self, packed: Vec<u8>) -> Result<ObjectText, E> {
        let Some(Verbatim { text, metadata }) = Verbatim::unpacked(packed) else {
            return Err(E::invalid_type(Unexpected::Bytes(b""), &self));
        };
        let json = Wiped::from(text);
        if has_escapes(metadata.of(&json)) {
            // What is read without decoding must be plain. No API server escapes it.
            let plain = self.visit_newtype_struct(&mut Decoder::new(&json));
            return plain.map_err(E::custom);
        }
        ObjectText::new(json, metadata).map_err(E::custom)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, from: D) -> Result<ObjectText, D::Error> {
        let copy = JsonCopy::of(from)?;
        let json = copy.bytes();
        let metadata = find(json, "metadata").unwrap_or_default();
        let metadata = part_of(metadata, json);
        let json = Wiped::beginning_with(json, json.len());
        ObjectText::new(json, metadata).map_err(D::Error::custom)
    }
}

/// Whether metadata has escapes outside of the annotations.
fn has_escapes(metadata: &[u8]) -> bool {
    let is_escaped = |value: &[u8]| value.contains(&b'\\');
    let members = members_of(metadata).map_while(Result::ok);
    let mut other = members.filter(|(key, _)| !spells(key, "annotations"));
    is_escaped(metadata) && other.any(|(key, value)| is_escaped(key) || is_escaped(value))
}

fn read<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectText, D::Error> {
    from.deserialize_newtype_struct(VERBATIM, TextVisitor)
}

impl<'de, K> Deserialize<'de> for Compact<K> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let kind = PhantomData;
        read(from).map(|text| Self { text, kind })
    }
}

impl<'de> Deserialize<'de> for Dynamic {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        read(from).map(Self)
    }
}

clone_of!([K] Compact<K>: text, kind);

impl<K: Object> fmt::Debug for Compact<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.resource_version_text();
        write!(f, "{} {} @{version}", K::resource().kind(), self.key())
    }
}

impl fmt::Debug for Dynamic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} @{}", self.key(), self.resource_version_text())
    }
}

/// The text of one object, overwritten on drop.
#[derive(Clone, Default)]
struct ObjectText {
    json: Wiped,
    namespace: TextPart,
    name: TextPart,
    uid: TextPart,
    version: TextPart,
    /// The whole map, braces included; empty without labels.
    labels: TextPart,
}

/// A part of the text. An object is far smaller than 4 GiB.
#[derive(Clone, Copy, Default)]
struct TextPart {
    start: u32,
    end: u32,
}

impl ObjectText {
    /// Keeps `json`, which is JSON with this metadata. Fails with the reason if it is not an object
    /// with plain names.
    fn new(json: Wiped, metadata: Span) -> Result<Self, String> {
        if !json.starts_with(b"{") {
            return Err("expected an object".to_owned());
        }
        let mut text = Self {
            json,
            ..Self::default()
        };
        let json: &[u8] = &text.json;
        let metadata = metadata.of(json);
        for (key, value) in members_of(metadata).map_while(Result::ok) {
            let part = match () {
                () if spells(key, "namespace") => &mut text.namespace,
                () if spells(key, "name") => &mut text.name,
                () if spells(key, "uid") => &mut text.uid,
                () if spells(key, "resourceVersion") => &mut text.version,
                () if spells(key, "labels") && value.starts_with(b"{") => {
                    text.labels = TextPart::of(value, json);
                    continue;
                }
                () => continue,
            };
            *part = match value {
                b"null" => TextPart::default(),
                [b'"', plain @ .., b'"'] if !plain.contains(&b'\\') => TextPart::of(plain, json),
                _ => {
                    let key = String::from_utf8_lossy(key);
                    let key = key.trim_matches('"');
                    let expected = "expected a string without escapes";
                    return Err(format!("metadata.{key}: {expected}"));
                }
            };
        }
        Ok(text)
    }

    /// Whether it has the fields that only writers need.
    fn is_untrimmed(&self) -> bool {
        let metadata = find(&self.json, "metadata").unwrap_or_default();
        let annotations = find(metadata, "annotations").unwrap_or_default();
        find(metadata, "managedFields").is_some() || find(annotations, LAST_APPLIED).is_some()
    }

    /// The value of a label. Label values have no characters that JSON escapes.
    fn label(&self, name: &str) -> Option<&str> {
        let value = find(self.part(self.labels), name)?;
        std::str::from_utf8(inner(value)?).ok()
    }

    /// The value at a JSON pointer, such as `/spec/nodeName`; `None` if there is none, or null.
    /// Fails with the reason if `pointer` is not a pointer, or the value is not a `T`.
    fn field<'a, T: Deserialize<'a>>(&'a self, pointer: &str) -> Result<Option<T>, String> {
        if !pointer.is_empty() && !pointer.starts_with('/') {
            return Err("a JSON pointer is empty or begins with \"/\"".to_owned());
        }
        let mut value = Some(&*self.json);
        for step in pointer.split('/').skip(1) {
            let name = step.replace("~1", "/").replace("~0", "~");
            value = match value {
                Some(map @ [b'{', ..]) => find(map, &name),
                Some(list @ [b'[', ..]) => nth(list, &name),
                _ => None,
            };
        }
        value.map_or(Ok(None), |value| Decoder::new(value).decode())
    }

    fn part(&self, part: TextPart) -> &[u8] {
        let long = |at: u32| usize::try_from(at).unwrap_or(usize::MAX);
        let range = long(part.start)..long(part.end);
        self.json.get(range).unwrap_or_default()
    }

    fn text(&self, part: TextPart) -> &str {
        std::str::from_utf8(self.part(part)).unwrap_or_default()
    }
}

/// The position of `part` in `whole`.
fn part_of(part: &[u8], whole: &[u8]) -> Span {
    let start = part.as_ptr().addr().saturating_sub(whole.as_ptr().addr());
    let end = start.saturating_add(part.len());
    Span { start, end }
}

impl TextPart {
    /// The position of `part` in `whole`.
    fn of(part: &[u8], whole: &[u8]) -> Self {
        let Span { start, end } = part_of(part, whole);
        let [start, end] = [start, end].map(|at| u32::try_from(at).unwrap_or(u32::MAX));
        Self { start, end }
    }
}

/// The list item with that number.
fn nth<'a>(list: &'a [u8], number: &str) -> Option<&'a [u8]> {
    let is_plain = number == "0" || number.starts_with(|digit: char| matches!(digit, '1'..='9'));
    if !is_plain {
        return None;
    }
    let items: Vec<&RawValue> = serde_json::from_slice(list).ok()?;
    Some(items.get(number.parse::<usize>().ok()?)?.get().as_bytes())
}
