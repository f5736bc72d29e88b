//! Watch events out of chunks: one JSON object is one event, told apart by type before what it
//! holds is decoded.

use std::fmt;
use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use serde::de::IgnoredAny;

use super::buffer::Grant;
use super::frame::{Frame, FrameLimit, Framed, Frames};
use super::initial::InitialEvents;
use super::item::{self, Fault, Identity};
use super::members::{Members, NotAnObject};
use super::message::{EventKind, Listed, ObjectEvent, WatchEvent};
use super::options::DecodeOptions;
use super::reason;
use super::scan::Shape;
use super::whole::{decode_status, is_table};
use crate::error::{Error, ErrorKind};
use crate::object::{Object, ResourceVersion, Status};

/// The annotation of the bookmark behind the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Decodes the body of a watch as it arrives.
///
/// Read into [`space`](Self::space), say with [`filled`](Self::filled) how much came, then call
/// [`next`](Self::next) until it gives `None`. Between events it holds no more than the 512 bytes
/// that `space` offers, and nothing after [`release`](Self::release).
///
/// An event is a JSON object. What stands between two of them, and whether there is a newline, has
/// no meaning.
pub struct EventDecoder<K> {
    frames: Frames,
    initial: Option<InitialEvents>,
    ended: bool,
    kind: PhantomData<fn() -> K>,
}

impl<K: Object> EventDecoder<K> {
    /// A decoder of one watch.
    pub fn new(options: &DecodeOptions) -> Self {
        Self::with_limit(
            options,
            FrameLimit {
                bytes_max: options.frame_bytes_max,
                option: "frame_bytes_max",
            },
        )
    }

    /// A decoder of a watch of one object: its events have the limit
    /// [`one_object_frame_bytes_max`](DecodeOptions::one_object_frame_bytes_max).
    pub fn for_one_object(options: &DecodeOptions) -> Self {
        if options.frame_bytes_max <= options.one_object_frame_bytes_max {
            return Self::new(options);
        }
        Self::with_limit(
            options,
            FrameLimit {
                bytes_max: options.one_object_frame_bytes_max,
                option: "one_object_frame_bytes_max",
            },
        )
    }

    fn with_limit(options: &DecodeOptions, limit: FrameLimit) -> Self {
        Self {
            frames: Frames::new(item::cutting::<K>(options), limit),
            initial: None,
            ended: false,
            kind: PhantomData,
        }
    }

    /// A decoder of a watch that begins with the present objects: up to the bookmark behind them it
    /// takes no more items and bytes than a list may have
    /// ([`list_items_max`](DecodeOptions::list_items_max),
    /// [`list_bytes_max`](DecodeOptions::list_bytes_max)).
    pub fn with_initial_events(options: &DecodeOptions) -> Self {
        Self {
            initial: Some(InitialEvents::new(options)),
            ..Self::new(options)
        }
    }

    /// Makes room for the next call of [`space`](Self::space), by as much memory as `grant` gives.
    ///
    /// # Errors
    ///
    /// `grant`'s own.
    pub(crate) fn reserve(&mut self, grant: Grant<'_>) -> Result<(), Error> {
        self.frames.reserve(grant)
    }

    /// Where to read into; never empty. Small while the stream is quiet, larger while reads fill
    /// it.
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
    /// What is no watch event ends the stream with a [`WatchEvent::Error`] of our own making, an
    /// internal
    /// error in client-go's words (RS-6). A well-formed object that is not a `K` is set aside (B12); one of another
    /// kind is skipped (RF-25).
    ///
    /// # Errors
    ///
    /// `TooLarge` when an event exceeds its maximum, or the initial events exceed theirs, naming
    /// the option. The
    /// stream is then at its end.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator ends at its first None; a stream goes on when bytes come"
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
        let decoded = match self.frames.next()? {
            Framed::Event(frame) => Some(decode_frame(frame)),
            Framed::Broken(broken) => Some(Err(Broken::envelope(broken))),
            Framed::NotYet => None,
        };
        if let Some(initial) = &mut self.initial {
            initial.used(self.frames.used())?;
        }
        let Some(decoded) = decoded else {
            return Ok(None);
        };
        let event = decoded.unwrap_or_else(|broken| {
            self.ended = true;
            WatchEvent::Error(broken.into_error())
        });
        if let Some(initial) = &mut self.initial {
            initial.event(&event)?;
        }
        Ok(Some(event))
    }

    /// Whether the decoder found the stream broken: what still comes is not looked at.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// To be called at the end of the body: the error of an event that was cut off, if there is one
    /// (RS-4).
    pub fn finish(&mut self) -> Option<Error> {
        let partial = self.frames.partial();
        let cut = !self.ended && partial > 0;
        self.ended = true;
        cut.then(|| {
            Error::new(
                ErrorKind::Protocol,
                format!("the watch was cut off: unexpected EOF behind {partial} bytes of an event"),
            )
        })
    }

    /// Gives back what a quiet stream does not need. Part of an event is kept.
    pub fn release(&mut self) {
        self.frames.release();
    }

    /// Ends the stream and gives back all that it holds.
    pub(crate) fn discard(&mut self) {
        self.ended = true;
        self.frames.discard();
    }

    /// The heap memory held, in bytes.
    pub fn held_bytes(&self) -> usize {
        self.frames.held()
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

/// Bytes that are no watch event, in the words of RS-7.
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

fn decode_frame<K: Object>(frame: Frame<'_>) -> Result<WatchEvent<K>, Broken> {
    let Frame {
        bytes,
        envelope,
        shape,
    } = frame;
    let kind = match envelope.kind {
        Some(kind) => serde_json::from_slice::<String>(kind.of(bytes))
            .map_err(|error| Broken::envelope(error.into()))?,
        None => String::new(),
    };
    let Some(object) = envelope.object else {
        // A server that fails in the middle of a stream may write the bare status.
        return match decode_status(bytes) {
            Some(status) => Ok(WatchEvent::Error(Error::from_status(status))),
            None => Err(Broken::envelope(NotAnObject)),
        };
    };
    let bytes = bytes.get_mut(object.start..object.end).unwrap_or_default();
    match &*kind {
        "ADDED" => change(bytes, shape, EventKind::Added),
        "MODIFIED" => change(bytes, shape, EventKind::Modified),
        "DELETED" => change(bytes, shape, EventKind::Deleted),
        "BOOKMARK" => bookmark(bytes, shape),
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

fn well_formed(json: &[u8]) -> Result<(), Broken> {
    serde_json::from_slice::<IgnoredAny>(json)
        .map(|_| ())
        .map_err(|error| Broken::object(&reason::without_values(&error)))
}

fn change<K: Object>(
    bytes: &mut [u8],
    shape: &Shape,
    kind: EventKind,
) -> Result<WatchEvent<K>, Broken> {
    let object = match item::decode(bytes, shape) {
        Ok(object) => Listed::Object(object),
        Err(Fault::Malformed(why)) => return Err(Broken::object(&why)),
        Err(Fault::Foreign { found, .. }) => return Ok(foreign(&found)),
        Err(Fault::Undecodable(object)) if object.key.name().is_empty() => {
            return Ok(not_understood(&object.error.to_string()));
        }
        Err(Fault::Undecodable(object)) => Listed::Undecodable(object),
    };
    Ok(WatchEvent::Object(ObjectEvent { kind, object }))
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
fn bookmark<K: Object>(bytes: &[u8], shape: &Shape) -> Result<WatchEvent<K>, Broken> {
    well_formed(bytes)?;
    if let Some(found) = item::foreign_kind::<K>(bytes, shape) {
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
