//! Decodes watch events from chunks. Each JSON object is one event; its type is known before its
//! object is decoded.

use std::marker::PhantomData;

use memchr::memchr;
use serde_json::json;

use super::buffer::Grant;
use super::frame::{Frame, Frames};
use super::item::{self, ItemFault, TypeNames, decode_failure, is_table, read_status};
use super::members::{find, find_all};
use super::message::{EventKind, Listed, ObjectEvent, Undecodable, WatchEvent};
use super::options::{DecodeOptions, list_too_large};
use super::place::Skipped;
use super::reason::{clip, protocol};
use super::scan::{parse, spells};
use super::selection::{Selection, passed_over};
use crate::error::{Error, debug_of};
use crate::object::{Object, ResourceVersion};
use crate::sync::Arc;

/// How API servers begin the line of a bookmark.
const BOOKMARK: &[u8] = br#"{"type":"BOOKMARK","#;

/// What stands before, between and behind the kind and the version of its object.
const USUAL_PARTS: [&str; 3] = [
    r#"{"kind":""#,
    r#"","apiVersion":""#,
    r#"","metadata":{"resourceVersion":""#,
];

/// How API servers of all versions end the object of a bookmark, behind its version.
const USUAL_ENDS: [&[u8]; 2] = [br#""}}"#, br#"","creationTimestamp":null}}"#];

/// The annotation of the bookmark that ends the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Decodes the body of a watch as it arrives.
///
/// The caller reads into [`space`](Self::space) and passes the number of bytes to
/// [`filled`](Self::filled). Then it calls [`next`](Self::next) until that returns `None`. When no
/// more bytes are there, it calls [`release`](Self::release): the decoder then holds part of an
/// event, or nothing.
///
/// An event is a JSON object. White space and newlines between two events have no meaning.
pub struct EventDecoder<K> {
    frames: Frames,
    skipped: Skipped,
    selection: Option<Arc<dyn Selection>>,
    /// The selection has selected the object of the next event.
    is_selected: bool,
    /// The maximum size of the present objects, in bytes, until a bookmark ends them.
    initial_bytes_max: usize,
    /// The number of bytes that were passed over in the decoded objects. The caller may reset it.
    pub(crate) skipped_bytes: usize,
    ended: bool,
    kind: PhantomData<fn() -> K>,
}

impl<K: Object> EventDecoder<K> {
    /// Creates a decoder of one watch.
    pub fn new(options: &DecodeOptions) -> Self {
        Self::with_limit(options, options.frame_bytes_max, "frame_bytes_max")
    }

    /// Creates a decoder of a watch of one object, whose events have the limit
    /// [`one_object_frame_bytes_max`](DecodeOptions::one_object_frame_bytes_max).
    pub fn for_one_object(options: &DecodeOptions) -> Self {
        if options.frame_bytes_max <= options.one_object_frame_bytes_max {
            return Self::new(options);
        }
        let bytes_max = options.one_object_frame_bytes_max;
        Self::with_limit(options, bytes_max, "one_object_frame_bytes_max")
    }

    fn with_limit(options: &DecodeOptions, bytes_max: usize, option: &'static str) -> Self {
        Self {
            frames: Frames::new(bytes_max, option),
            skipped: item::skipped::<K>(options),
            selection: None,
            is_selected: false,
            initial_bytes_max: usize::MAX,
            skipped_bytes: 0,
            ended: false,
            kind: PhantomData,
        }
    }

    /// Creates a decoder of a watch that begins with the present objects.
    ///
    /// The objects before the bookmark that ends them have the limit of a list:
    /// [`list_bytes_max`](DecodeOptions::list_bytes_max).
    pub fn with_initial_events(options: &DecodeOptions) -> Self {
        Self {
            initial_bytes_max: options.list_bytes_max,
            ..Self::new(options)
        }
    }

    /// Passes over the objects that `selection` does not select: each is a
    /// [`WatchEvent::Unselected`].
    pub(crate) fn selecting(self, selection: Option<Arc<dyn Selection>>) -> Self {
        Self { selection, ..self }
    }

    /// Makes room for the next call of [`space`](Self::space), within the memory that `grant`
    /// allows.
    ///
    /// # Errors
    ///
    /// The error of `grant`.
    pub(crate) fn reserve(&mut self, grant: Grant<'_>) -> Result<(), Error> {
        self.frames.buffer.reserve(grant)
    }

    /// The space for the next read; never empty. It is small while the stream is quiet, and grows
    /// while reads fill it.
    pub fn space(&mut self) -> &mut [u8] {
        self.frames.buffer.space()
    }

    /// Notes that the first `count` bytes of the space were filled.
    pub fn filled(&mut self, count: usize) {
        self.frames.buffer.filled(count);
    }

    /// Decodes the next event of the bytes that have come. `None` asks for more bytes, or marks the
    /// end of the stream (see [`is_ended`](Self::is_ended)).
    ///
    /// Bytes that are not a watch event end the stream with a [`WatchEvent::Error`], an internal
    /// error in client-go's words. So does an event of an unknown type, and a change of an object
    /// whose kind or name cannot be read. The decoder sets aside a well-formed object that is not a
    /// `K`. It skips an object of another kind.
    ///
    /// # Errors
    ///
    /// `TooLarge` when an event, or the initial events together, exceed their maximum. The error
    /// names the option, and the stream has ended.
    #[cfg_attr(
        feature = "testing",
        expect(
            clippy::should_implement_trait,
            reason = "an iterator ends at its first None; a stream goes on when bytes come"
        )
    )]
    pub fn next(&mut self) -> Result<Option<WatchEvent<K>>, Error> {
        if self.ended {
            return Ok(None);
        }
        let next = self.next_event();
        self.ended |= next.is_err();
        next
    }

    fn next_event(&mut self) -> Result<Option<WatchEvent<K>>, Error> {
        let decoded = if let Some(event) = self.decode_line() {
            Some(Ok(event))
        } else {
            let selection = self.selection.as_deref().filter(|_| !self.is_selected);
            self.frames.next()?.map(|frame| match frame {
                Ok(frame) => decode_frame(&frame, self.skipped, selection, &mut self.skipped_bytes),
                Err(_) => Err(NO_EVENT.to_owned()),
            })
        };
        let bytes_max = self.initial_bytes_max;
        if self.frames.used > bytes_max {
            return Err(list_too_large(bytes_max, "bytes", "list_bytes_max"));
        }
        let Some(decoded) = decoded else {
            return Ok(None);
        };
        self.is_selected = false;
        let event = decoded.unwrap_or_else(|why| {
            self.ended = true;
            WatchEvent::Error(broken(&why))
        });
        if matches!(event, WatchEvent::Bookmark { initial_events_end: end, .. } if end) {
            self.initial_bytes_max = usize::MAX;
        }
        Ok(Some(event))
    }

    /// Decodes the next line if it is an event as API servers write it. The scanner takes anything
    /// else.
    fn decode_line(&mut self) -> Option<WatchEvent<K>> {
        let line = self.frames.line()?;
        let length = line.len();
        let rest = line.strip_prefix(br#"{"type":""#)?;
        let (kind, rest) = rest.split_at_checked(memchr(b'"', rest)?)?;
        let object = rest.strip_prefix(br#"","object":"#)?.strip_suffix(b"}")?;
        let event = if kind == b"BOOKMARK" {
            bookmark(object).ok()?
        } else {
            let kind = change_kind(|word| word.as_bytes() == kind)?;
            let selection = self.selection.as_deref().filter(|_| !self.is_selected);
            if let Some(resource_version) = passed_over(selection, object, &mut self.is_selected) {
                WatchEvent::Unselected {
                    kind,
                    resource_version,
                }
            } else {
                let (read, decoder) = item::read(object, self.skipped).ok()?;
                if decoder.used() != object.len() {
                    return None;
                }
                self.skipped_bytes = self.skipped_bytes.saturating_add(decoder.skipped_bytes);
                let object = Listed::Object(read);
                WatchEvent::Object(ObjectEvent { kind, object })
            }
        };
        self.frames.pass(length);
        Some(event)
    }

    /// Whether the stream is broken. The decoder then ignores further bytes.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// Notes that the body has ended. [`next`](Self::next) decodes the rest, even without a final
    /// newline.
    pub fn end_of_body(&mut self) {
        self.frames.at_end = true;
    }

    /// Ends the stream at the end of the body. Returns an error if an event was cut off.
    pub fn finish(&mut self) -> Option<Error> {
        let partial = self.frames.partial();
        let cut = !self.ended && partial > 0;
        self.ended = true;
        cut.then(|| {
            let what = "the watch was cut off: unexpected EOF";
            protocol(&format!("{what} behind {partial} bytes of an event"))
        })
    }

    /// Whether a whole event has come, on a line of its own.
    pub(crate) fn has_line(&mut self) -> bool {
        !self.ended && self.frames.line().is_some()
    }

    /// Whether that event is a bookmark, which is decoded without a `K`.
    pub(crate) fn has_bookmark(&mut self) -> bool {
        let line = self.frames.line();
        !self.ended && line.is_some_and(|line| line.starts_with(BOOKMARK))
    }

    /// The number of bytes that were read but not decoded yet.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.frames.partial()
    }

    /// Frees the memory that a quiet stream does not need. The decoder keeps a part of an event.
    pub fn release(&mut self) {
        self.frames.buffer.release();
    }

    /// The heap memory held, in bytes.
    pub fn held_bytes(&self) -> usize {
        self.frames.buffer.held()
    }
}

debug_of!([K] EventDecoder<K>, |it| partial_bytes: it.frames.partial(), ended: it.ended, ..);

/// Why bytes are not a watch event (RS-7).
const NO_EVENT: &str = "unable to decode to metav1.WatchEvent";

/// Why the object of an event is not an object (RS-7).
fn no_object(why: &str) -> String {
    format!("unable to decode watch event: {why}")
}

/// RS-6: the status that client-go makes for bytes that are not a watch event.
fn broken(why: &str) -> Error {
    let why = format!("unable to decode an event from the watch stream: {why}");
    let message =
        format!("an error on the server (\"{why}\") has prevented the request from succeeding");
    let causes = ["UnexpectedServerResponse", "ClientWatchDecoding"];
    let causes = causes.map(|reason| json!({"reason": reason, "message": why}));
    let status = json!({
        "status": "Failure", "code": 500, "reason": "InternalError", "message": message,
        "details": {"causes": causes},
    });
    Error::from_status(read_status(status.to_string().as_bytes()))
}

/// Decodes the event in a frame. Fails with the reason if there is none.
fn decode_frame<K: Object>(
    frame: &Frame<'_>,
    skipped: Skipped,
    selection: Option<&dyn Selection>,
    skipped_bytes: &mut usize,
) -> Result<WatchEvent<K>, String> {
    let (bytes, kind) = (frame.bytes, frame.kind);
    let Some(object) = frame.object.map(|object| object.of(bytes)) else {
        // A server that fails in the middle of a stream may write the bare status.
        return match decode_failure(bytes) {
            Some(status) => Ok(WatchEvent::Error(Error::from_status(status))),
            None => Err(NO_EVENT.to_owned()),
        };
    };
    let is = |word: &str| kind.is_some_and(|kind| spells(kind.of(bytes), word));
    if let Some(kind) = change_kind(is) {
        return match passed_over(selection, object, &mut false) {
            Some(resource_version) => Ok(WatchEvent::Unselected {
                kind,
                resource_version,
            }),
            None => change(object, skipped, kind, skipped_bytes),
        };
    }
    if is("BOOKMARK") {
        return bookmark(object);
    }
    if is("ERROR") {
        return failure(object);
    }
    let unknown = match kind {
        Some(kind) => parse::<String>(kind.of(bytes)),
        None => Ok(String::new()),
    };
    let unknown = unknown.map_err(|_quotes| NO_EVENT)?;
    well_formed(object)?;
    let (unknown, words) = (clip(&unknown).escape_debug(), words(object));
    Err(format!("got invalid watch event type: {unknown}{words}"))
}

/// The server's words about a failure, sent in place of an object, to be appended; empty without
/// any.
fn words(object: &[u8]) -> String {
    let said = decode_failure(object).map(|status| status.message().to_owned());
    let said = said.filter(|message| !message.is_empty());
    said.map_or_else(String::new, |message| format!(": {message}"))
}

/// The change that the `type` of an event names.
fn change_kind(is: impl Fn(&str) -> bool) -> Option<EventKind> {
    let changes = [
        ("MODIFIED", EventKind::Updated),
        ("ADDED", EventKind::Added),
        ("DELETED", EventKind::Deleted),
    ];
    let change = changes.into_iter().find(|(word, _)| is(word));
    change.map(|(_, kind)| kind)
}

fn well_formed(json: &[u8]) -> Result<(), String> {
    item::well_formed(json).map_err(|why| no_object(&why))
}

fn change<K: Object>(
    bytes: &[u8],
    skipped: Skipped,
    kind: EventKind,
    skipped_bytes: &mut usize,
) -> Result<WatchEvent<K>, String> {
    let object = match item::decode(bytes, skipped, skipped_bytes) {
        Ok(object) => Listed::Object(object),
        Err(ItemFault::Malformed(why)) => return Err(no_object(&why)),
        Err(ItemFault::Foreign { found, .. }) => return Ok(foreign(&found)),
        Err(ItemFault::Undecodable(object)) if cannot_be_told(bytes, &object) => {
            return untold(bytes, &object.error.to_string());
        }
        Err(ItemFault::Undecodable(object)) => Listed::from(object),
    };
    Ok(WatchEvent::Object(ObjectEvent { kind, object }))
}

/// Whether an undecodable object lacks a name, or has a kind or version that says nothing. It
/// cannot be set aside then.
fn cannot_be_told(object: &[u8], aside: &Undecodable) -> bool {
    let says_nothing = |name: &&str| {
        let said = find(object, name);
        said.is_some_and(|said| item::text(Some(said)).is_empty())
    };
    aside.key.name().is_empty() || ["kind", "apiVersion"].iter().any(says_nothing)
}

/// RF-25 skips an object of the kind without any name. Any other change concerns an unknown object
/// and must not be lost: the watch ends, and a list follows (RS-6).
fn untold<K: Object>(object: &[u8], why: &str) -> Result<WatchEvent<K>, String> {
    if item::text(find(object, "kind")).is_empty() {
        let words = words(object);
        return Err(no_object(&format!("Object 'Kind' is missing{words}")));
    }
    match find(object, "metadata").and_then(|metadata| find(metadata, "name")) {
        Some(_) => Err(no_object(why)),
        None => Ok(not_understood(why)),
    }
}

/// RF-25: an object of another kind, or a Table, is not an event.
fn foreign<K: Object>(found: &str) -> WatchEvent<K> {
    let what = if is_table(found) {
        "Unsupported"
    } else {
        "Unexpected"
    };
    skipped(format!("{what} watch event object gvk: {found}"))
}

fn not_understood<K: Object>(why: &str) -> WatchEvent<K> {
    skipped(format!("Unable to understand watch event: {why}"))
}

fn skipped<K: Object>(reason: String) -> WatchEvent<K> {
    WatchEvent::Skipped {
        reason,
        resource_version: ResourceVersion::default(),
    }
}

/// RF-27: only the metadata of a bookmark counts.
fn bookmark<K: Object>(bytes: &[u8]) -> Result<WatchEvent<K>, String> {
    if let Some(version) = usual_version(bytes, &K::resource().type_names()) {
        return Ok(WatchEvent::Bookmark {
            resource_version: version.into(),
            initial_events_end: false,
        });
    }
    well_formed(bytes)?;
    let [kind, api_version, metadata] = find_all(bytes, ["kind", "apiVersion", "metadata"]);
    if let Some(found) = item::foreign_kind::<K>(kind, api_version) {
        return Ok(foreign(&found));
    }
    let metadata = metadata.unwrap_or_default();
    let [version, annotations] = find_all(metadata, ["resourceVersion", "annotations"]);
    let version = item::text(version);
    if version.is_empty() {
        return Ok(not_understood("a bookmark without resourceVersion"));
    }
    let end = find(annotations.unwrap_or_default(), INITIAL_EVENTS_END);
    Ok(WatchEvent::Bookmark {
        resource_version: version.into(),
        initial_events_end: end.is_some_and(|end| spells(end, "true")),
    })
}

/// The version in a bookmark exactly as API servers write it for objects without other fields, of
/// these names.
fn usual_version<'a>(bytes: &'a [u8], (api_version, kind): &TypeNames) -> Option<&'a str> {
    let [a, b, c] = USUAL_PARTS;
    let mut parts = [a, kind, b, api_version, c].into_iter();
    let rest = parts.try_fold(bytes, |rest, part| rest.strip_prefix(part.as_bytes()))?;
    let (version, rest) = rest.split_at_checked(memchr(b'"', rest)?)?;
    let is_number = !version.is_empty() && version.iter().all(u8::is_ascii_digit);
    let version = str::from_utf8(version).ok();
    version.filter(|_| is_number && USUAL_ENDS.contains(&rest))
}

fn failure<K: Object>(bytes: &[u8]) -> Result<WatchEvent<K>, String> {
    if let Some(status) = decode_failure(bytes) {
        return Ok(WatchEvent::Error(Error::from_status(status)));
    }
    well_formed(bytes)?;
    // RS-9, without the object's values.
    let kind = item::text(find(bytes, "kind"));
    let kind = clip(&kind).escape_debug().to_string();
    let key = item::key_of(bytes);
    let message = format!("unexpected object: {kind} {key}");
    Ok(WatchEvent::Error(protocol(message.trim_end())))
}
