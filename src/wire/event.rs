//! Watch events out of chunks: one line is one event, told apart by type before its object is decoded.

use std::fmt;
use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use serde::de::IgnoredAny;

use super::frame::Frames;
use super::initial::InitialEvents;
use super::item::{self, Fault, Identity};
use super::members::{Members, NotAnObject};
use super::message::{Undecodable, WatchEvent};
use super::options::{DecodeOptions, Trim};
use super::reason;
use super::scan::{Scan, Span, is_space, spells};
use super::whole::{decode_status, is_table};
use crate::error::{Error, ErrorKind};
use crate::object::{Held, Object, ResourceVersion, Status};
use crate::sync::Arc;

/// The annotation of the bookmark behind the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Decodes the body of a watch as it arrives.
///
/// Read into [`space`](Self::space), say with [`filled`](Self::filled) how much came, then call
/// [`next`](Self::next) until it gives `None`. Between events it holds no more than the 512 bytes that `space`
/// offers, and nothing after [`release`](Self::release).
pub struct EventDecoder<K> {
    frames: Frames,
    scan: Scan,
    trim: bool,
    initial: Option<InitialEvents>,
    ended: bool,
    kind: PhantomData<fn() -> K>,
}

impl<K: Object> EventDecoder<K> {
    /// A decoder of one watch.
    pub fn new(options: &DecodeOptions) -> Self {
        Self {
            frames: Frames::new(options.frame_bytes_max),
            scan: Scan::default(),
            trim: options.trim == Trim::Skip,
            initial: None,
            ended: false,
            kind: PhantomData,
        }
    }

    /// A decoder of a watch that begins with the present objects: up to the bookmark behind them it takes no more
    /// items and bytes than a list may have ([`list_items_max`](DecodeOptions::list_items_max),
    /// [`list_bytes_max`](DecodeOptions::list_bytes_max)).
    pub fn with_initial_events(options: &DecodeOptions) -> Self {
        Self {
            initial: Some(InitialEvents::new(options)),
            ..Self::new(options)
        }
    }

    /// Where to read into; never empty. Small while the stream is quiet, larger while reads fill it.
    pub fn space(&mut self) -> &mut [u8] {
        self.frames.space()
    }

    /// Tells that the first `count` bytes of the space were filled.
    pub fn filled(&mut self, count: usize) {
        self.frames.filled(count);
    }

    /// The next event of what has come; `None` asks for bytes, or stands at the end (see
    /// [`is_ended`](Self::is_ended)).
    ///
    /// A line that is no watch event ends the stream with a [`WatchEvent::Error`] of our own making, an internal
    /// error in client-go's words (RS-6). A well-formed object that is not a `K` is set aside (B12); one of another
    /// kind is skipped (RF-25).
    ///
    /// # Errors
    ///
    /// `TooLarge` when a line exceeds its maximum, or the initial events exceed theirs, naming the option. The stream
    /// is then at its end.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator ends at its first None; a stream goes on when bytes come"
    )]
    pub fn next(&mut self) -> Result<Option<WatchEvent<K>>, Error> {
        while !self.ended {
            match self.next_line() {
                Ok(Line::Event(event)) => return Ok(Some(event)),
                Ok(Line::Blank) => {}
                Ok(Line::NotYet) => return Ok(None),
                Err(error) => {
                    self.ended = true;
                    return Err(error);
                }
            }
        }
        Ok(None)
    }

    fn next_line(&mut self) -> Result<Line<K>, Error> {
        let Some(line) = self.frames.next()? else {
            return Ok(Line::NotYet);
        };
        if let Some(initial) = &mut self.initial {
            initial.line(line.len().saturating_add(1))?;
        }
        if line.iter().all(|byte| is_space(*byte)) {
            return Ok(Line::Blank);
        }
        let event = decode_line(line, &mut self.scan, self.trim).unwrap_or_else(|broken| {
            self.ended = true;
            WatchEvent::Error(broken.into_error())
        });
        if let Some(initial) = &mut self.initial {
            initial.event(&event)?;
        }
        Ok(Line::Event(event))
    }

    /// Whether the decoder found the stream broken: what still comes is not looked at.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// To be called at the end of the body: the error of a line that was cut off, if there is one (RS-4).
    pub fn finish(&mut self) -> Option<Error> {
        let partial = self.frames.partial();
        let cut = !self.ended && partial > 0;
        self.ended = true;
        cut.then(|| {
            Error::new(
                ErrorKind::Protocol,
                format!("the watch was cut off: unexpected EOF behind {partial} bytes of a line"),
            )
        })
    }

    /// Gives back what a quiet stream does not need. Part of a line is kept.
    pub fn release(&mut self) {
        self.frames.release();
        self.scan.release();
    }

    /// The heap memory held, in bytes.
    pub fn held_bytes(&self) -> usize {
        self.frames.held().saturating_add(self.scan.held())
    }
}

impl<K> fmt::Debug for EventDecoder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventDecoder")
            .field("partial_bytes", &self.frames.partial())
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

/// What a line came to.
enum Line<K: Object> {
    Event(WatchEvent<K>),
    Blank,
    /// Its newline has not come.
    NotYet,
}

/// A line that is no watch event, in the words of RS-7.
struct Broken(String);

impl Broken {
    /// RS-6: the status client-go makes of it.
    fn into_error(self) -> Error {
        let why = format!(
            "unable to decode an event from the watch stream: {}",
            self.0
        );
        let message =
            format!("an error on the server (\"{why}\") has prevented the request from succeeding");
        let cause = |reason: &str| meta::StatusCause {
            reason: Some(reason.to_owned()),
            message: Some(why.clone()),
            ..meta::StatusCause::default()
        };
        let status = meta::Status {
            status: Some("Failure".to_owned()),
            code: Some(500),
            reason: Some("InternalError".to_owned()),
            details: Some(meta::StatusDetails {
                causes: Some(vec![
                    cause("UnexpectedServerResponse"),
                    cause("ClientWatchDecoding"),
                ]),
                ..meta::StatusDetails::default()
            }),
            message: Some(message),
            ..meta::Status::default()
        };
        Error::from_status(Status::from(status))
    }

    fn envelope(_: NotAnObject) -> Self {
        Self("unable to decode to metav1.WatchEvent".to_owned())
    }

    fn object(why: &str) -> Self {
        Self(format!("unable to decode watch event: {why}"))
    }
}

fn decode_line<K: Object>(
    line: &mut [u8],
    scan: &mut Scan,
    trim: bool,
) -> Result<WatchEvent<K>, Broken> {
    let (kind, object) = envelope(line, scan, trim).map_err(Broken::envelope)?;
    let Some(object) = object else {
        // A server that fails in the middle of a stream may write the bare status.
        return match decode_status(line) {
            Some(status) => Ok(WatchEvent::Error(Error::from_status(status))),
            None => Err(Broken::envelope(NotAnObject)),
        };
    };
    let bytes = line.get_mut(object.start..object.end).unwrap_or_default();
    match &*kind {
        "ADDED" => change(bytes, scan, WatchEvent::Added, WatchEvent::Undecodable),
        "MODIFIED" => change(bytes, scan, WatchEvent::Modified, WatchEvent::Undecodable),
        "DELETED" => change(
            bytes,
            scan,
            WatchEvent::Deleted,
            WatchEvent::DeletedUndecodable,
        ),
        "BOOKMARK" => bookmark(bytes, scan),
        "ERROR" => failure(bytes),
        unknown => {
            well_formed(bytes)?;
            let unknown = reason::clip(unknown).escape_debug();
            Ok(WatchEvent::Skipped {
                reason: format!("got invalid watch event type: {unknown}"),
                resource_version: Identity::of(bytes).resource_version.into(),
            })
        }
    }
}

/// The event's type, and where its object stands; the object has been scanned.
fn envelope(
    line: &[u8],
    scan: &mut Scan,
    trim: bool,
) -> Result<(String, Option<Span>), NotAnObject> {
    let mut kind = String::new();
    let mut object = None;
    let mut members = Members::new(line);
    while let Some(key) = members.key()? {
        if spells(key, "object") {
            scan.begin_object(trim);
            let (start, value) = members.value_by(scan)?;
            let end = start.saturating_add(value.len());
            object = Some(Span { start, end });
        } else {
            let value = members.value()?;
            if spells(key, "type") {
                kind = serde_json::from_slice(value)?;
            }
        }
    }
    Ok((kind, object))
}

fn well_formed(json: &[u8]) -> Result<(), Broken> {
    serde_json::from_slice::<IgnoredAny>(json)
        .map(|_| ())
        .map_err(|error| Broken::object(&reason::without_values(&error)))
}

fn change<K: Object>(
    bytes: &mut [u8],
    scan: &Scan,
    decoded: fn(Arc<Held<K>>) -> WatchEvent<K>,
    aside: fn(Undecodable) -> WatchEvent<K>,
) -> Result<WatchEvent<K>, Broken> {
    match item::decode(bytes, scan.shape()) {
        Ok(object) => Ok(decoded(object)),
        Err(Fault::Malformed(why)) => Err(Broken::object(&why)),
        Err(Fault::Foreign { found, .. }) => Ok(foreign(&found)),
        Err(Fault::Undecodable(object)) if object.key.name().is_empty() => {
            Ok(not_understood(&object.error.to_string()))
        }
        Err(Fault::Undecodable(object)) => Ok(aside(object)),
    }
}

/// RF-25: an object of another kind, or a Table, is no event.
fn foreign<K: Object>(found: &str) -> WatchEvent<K> {
    let what = if is_table(found) {
        "Unsupported"
    } else {
        "Unexpected"
    };
    WatchEvent::Skipped {
        reason: format!("{what} watch event object gvk: {found}"),
        resource_version: ResourceVersion::default(),
    }
}

fn not_understood<K: Object>(why: &str) -> WatchEvent<K> {
    WatchEvent::Skipped {
        reason: format!("Unable to understand watch event: {why}"),
        resource_version: ResourceVersion::default(),
    }
}

/// RF-27: only the metadata of a bookmark means anything.
fn bookmark<K: Object>(bytes: &[u8], scan: &Scan) -> Result<WatchEvent<K>, Broken> {
    well_formed(bytes)?;
    if let Some(found) = item::foreign_kind::<K>(bytes, scan.shape()) {
        return Ok(foreign(&found));
    }
    let metadata = Members::find(bytes, "metadata").unwrap_or_default();
    let version = item::text(Members::find(metadata, "resourceVersion"));
    if version.is_empty() {
        return Ok(not_understood("a bookmark without resourceVersion"));
    }
    let annotations = Members::find(metadata, "annotations").unwrap_or_default();
    let end = item::text(Members::find(annotations, INITIAL_EVENTS_END));
    Ok(WatchEvent::Bookmark {
        resource_version: version.into(),
        initial_events_end: end == "true",
    })
}

fn failure<K: Object>(bytes: &[u8]) -> Result<WatchEvent<K>, Broken> {
    if let Some(status) = decode_status(bytes) {
        return Ok(WatchEvent::Error(Error::from_status(status)));
    }
    well_formed(bytes)?;
    // RS-9, without the object's values.
    let kind = item::text(Members::find(bytes, "kind"));
    let kind = reason::clip(&kind).escape_debug().to_string();
    let key = Identity::of(bytes).key();
    let message = format!("unexpected object: {kind} {key}");
    Ok(WatchEvent::Error(Error::new(
        ErrorKind::Protocol,
        message.trim_end(),
    )))
}
