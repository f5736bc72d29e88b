//! The acts of a test server, instead of or on top of its answer: each with its name, an example
//! and the behaviour of a correct client.

use std::time::Duration;

/// A misbehaviour of a test server. [`FAULTS`](super::FAULTS) lists all of them.
///
/// An act belongs to one of four layers: it affects the connection, replaces the answer, changes
/// the answer's content, or affects the sending of bytes. A connection meets one act. A request
/// meets one that replaces the answer, all that change it, and one that affects the sending.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Act {
    /// Resets the connection as soon as it is open. For a port without a listener, see `crash` of
    /// the server.
    Refuse,
    /// Accepts the connection, but reads and sends nothing. With [`every`](super::Fault::every),
    /// each n-th connection is a black hole.
    Silent,
    /// Shows a certificate that the client must not accept. Only for servers with certificates of a
    /// [`TestAuthority`](crate::testing::TestAuthority); others end the connection, also without
    /// TLS.
    Certificate(CertificateFlaw),
    /// Takes only clients with a certificate of the server's
    /// [`TestAuthority`](crate::testing::TestAuthority); others get a TLS alert. Without TLS, it
    /// ends the connection.
    ClientCertificate,

    /// Answers with a `Status` of the API. Uses up no recorded answer.
    Status {
        /// The HTTP status.
        code: u16,
        /// The `reason`, such as `TooManyRequests`; empty for none.
        reason: String,
        /// The header `Retry-After`.
        retry_after: Option<Duration>,
    },
    /// Takes the request and never answers. Uses up no recorded answer.
    Hang,
    /// Answers 401 until the client sends another token than its first one.
    Unauthorized,
    /// Answers 504 `Too large resource version`, in the API server's words.
    TooLargeVersion,
    /// Answers with a page of HTML and status 200, as a login page does.
    Html,
    /// Answers 302 with this `Location`.
    Redirect(String),
    /// Answers 400 with a message that repeats all headers of the request, including the token.
    EchoHeaders,
    /// Answers 500 with control characters in the message: colours, line ends, a zero byte.
    ControlCharacters,
    /// Opens the watch and sends an `ERROR` event with this `Status`. Other requests pass.
    WatchError {
        /// The `code` of the `Status`.
        code: u16,
        /// Its `reason`; empty for none.
        reason: String,
    },
    /// Sends the beginning of a line, an item or a body, `bytes` long, and ends there.
    Unfinished {
        /// The part that does not end.
        part: Unfinished,
        /// The number of bytes.
        bytes: usize,
    },
    /// Sends white space that is small as gzip, and has this many bytes decompressed.
    GzipBomb(usize),

    /// Gives each object another `kind`, and a list too.
    WrongKind,
    /// Gives each object another name.
    WrongNames,
    /// Removes each object's name.
    Unnamed,
    /// Makes each object undecodable: well-formed JSON that does not decode into its type.
    Undecodable,
    /// Puts a byte into each object that is not UTF-8.
    NotUtf8,
    /// Nests arrays in each object, to this depth.
    Deep(usize),
    /// Puts a number into each object that no integer or float can hold.
    HugeNumber,
    /// Lowers each resource version by this much, like a server that is behind, or was restored.
    OlderVersions(u64),
    /// Withholds the bookmarks of watches.
    NoBookmarks,
    /// Withholds the changes of watches, but not their bookmarks.
    NoEvents,
    /// Withholds everything of a watch, and sends blank lines instead. The watch still counts as
    /// open. It ends when the server ends its watches, but not at its time-out.
    Heartbeats {
        /// The wait before each, on the server's clock.
        every: Duration,
    },
    /// Sends each event of a watch twice.
    DuplicateEvents,
    /// Swaps each pair of events of a watch.
    ReorderEvents,
    /// Compresses the body with gzip, and leaves out the end of the stream.
    GzipCut,

    /// Sends this many bytes of the body and then nothing, with the connection open. Uses up the
    /// recorded answer: the next request gets the one after it.
    HangAfter(usize),
    /// Sends this many bytes of the body and then ends the connection. Uses up the recorded answer:
    /// the next request gets the one after it.
    CutAfter(usize),
    /// Sends the body in small pieces, with a wait before each.
    Drip {
        /// Bytes per piece.
        bytes: usize,
        /// The wait before each piece, on the server's clock.
        every: Duration,
    },
    /// Sends the first bytes of that part and then nothing, with the connection open.
    Stall {
        /// Where.
        part: Part,
        /// How many bytes of the part pass.
        after: usize,
    },
    /// Sends that part in small pieces, with a wait before each.
    Dribble {
        /// Where.
        part: Part,
        /// Bytes per piece.
        bytes: usize,
        /// The wait before each piece, on the server's clock.
        every: Duration,
    },
    /// Sends the first bytes of that part and then closes the connection (FIN).
    Cut {
        /// Where.
        part: Part,
        /// How many bytes of the part pass.
        after: usize,
    },
    /// Sends the first bytes of that part and then resets the connection (RST).
    Reset {
        /// Where.
        part: Part,
        /// How many bytes of the part pass.
        after: usize,
    },
    /// Flips the lowest bit of that byte; the first one is number 0.
    FlipBit {
        /// Where.
        part: Part,
        /// Which byte of the part.
        at: usize,
    },
    /// Answers, and then reads no later request on the connection, which stays open but dead.
    HalfOpen,
    /// States a length that is wrong by this much, sends the whole body, and closes the connection.
    /// For a watch it states this length.
    WrongLength(i64),
    /// Sends this many interim answers (103) before the answer.
    InterimFlood(usize),
}

/// The flaw of a server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CertificateFlaw {
    /// It has expired.
    Expired,
    /// It is not valid yet.
    NotYetValid,
    /// It is for another host.
    WrongHost,
    /// An authority that the client does not know signed it.
    UnknownAuthority,
}

/// The part that does not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unfinished {
    /// A line of a watch.
    Line,
    /// An item of a list.
    Item,
    /// The value before its first object.
    Body,
}

/// A part of a server's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Part {
    /// The server's side of the TLS handshake. Without TLS: the time before the first request.
    ///
    /// No byte passes in that time. So a stall, a cut and a reset take effect at once, whatever
    /// their number of bytes. There is nothing to dribble, and no bit to flip.
    Handshake,
    /// The status line and the headers.
    Head,
    /// The body, before its framing. With a fault that answers, the body of that answer.
    Body,
    /// One line of the body, such as an event of a watch; the first one is number 1.
    Event(usize),
}

/// The point of a request at which an act applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layer {
    Connection,
    Answer,
    Content,
    Wire,
}

impl Act {
    pub(super) fn layer(&self) -> Layer {
        match self {
            Self::Refuse
            | Self::Silent
            | Self::Certificate(_)
            | Self::ClientCertificate
            | Self::Stall {
                part: Part::Handshake,
                ..
            }
            | Self::Dribble {
                part: Part::Handshake,
                ..
            }
            | Self::Cut {
                part: Part::Handshake,
                ..
            }
            | Self::Reset {
                part: Part::Handshake,
                ..
            }
            | Self::FlipBit {
                part: Part::Handshake,
                ..
            } => Layer::Connection,
            Self::Status { .. }
            | Self::Hang
            | Self::Unauthorized
            | Self::TooLargeVersion
            | Self::Html
            | Self::Redirect(_)
            | Self::EchoHeaders
            | Self::ControlCharacters
            | Self::WatchError { .. }
            | Self::Unfinished { .. }
            | Self::GzipBomb(_) => Layer::Answer,
            Self::WrongKind
            | Self::WrongNames
            | Self::Unnamed
            | Self::Undecodable
            | Self::NotUtf8
            | Self::Deep(_)
            | Self::HugeNumber
            | Self::OlderVersions(_)
            | Self::NoBookmarks
            | Self::NoEvents
            | Self::Heartbeats { .. }
            | Self::DuplicateEvents
            | Self::ReorderEvents
            | Self::GzipCut => Layer::Content,
            Self::HangAfter(_)
            | Self::CutAfter(_)
            | Self::Drip { .. }
            | Self::Stall { .. }
            | Self::Dribble { .. }
            | Self::Cut { .. }
            | Self::Reset { .. }
            | Self::FlipBit { .. }
            | Self::HalfOpen
            | Self::WrongLength(_)
            | Self::InterimFlood(_) => Layer::Wire,
        }
    }

    /// Whether it affects only watches.
    pub(super) fn is_of_watches(&self) -> bool {
        matches!(
            self,
            Self::WatchError { .. }
                | Self::NoBookmarks
                | Self::NoEvents
                | Self::Heartbeats { .. }
                | Self::DuplicateEvents
                | Self::ReorderEvents
        )
    }

    /// Returns its name, as in [`FAULTS`](super::FAULTS) and the JSON form.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::Silent => "silent",
            Self::Certificate(_) => "certificate",
            Self::ClientCertificate => "client-certificate",
            Self::Status { .. } => "status",
            Self::Hang => "hang",
            Self::Unauthorized => "unauthorized",
            Self::TooLargeVersion => "too-large-version",
            Self::Html => "html",
            Self::Redirect(_) => "redirect",
            Self::EchoHeaders => "echo-headers",
            Self::ControlCharacters => "control-characters",
            Self::WatchError { .. } => "watch-error",
            Self::Unfinished { .. } => "unfinished",
            Self::GzipBomb(_) => "gzip-bomb",
            Self::WrongKind => "wrong-kind",
            Self::WrongNames => "wrong-names",
            Self::Unnamed => "unnamed",
            Self::Undecodable => "undecodable",
            Self::NotUtf8 => "not-utf-8",
            Self::Deep(_) => "deep",
            Self::HugeNumber => "huge-number",
            Self::OlderVersions(_) => "older-versions",
            Self::NoBookmarks => "no-bookmarks",
            Self::NoEvents => "no-events",
            Self::Heartbeats { .. } => "heartbeats",
            Self::DuplicateEvents => "duplicate-events",
            Self::ReorderEvents => "reorder-events",
            Self::GzipCut => "gzip-cut",
            Self::HangAfter(_) => "hang-after",
            Self::CutAfter(_) => "cut-after",
            Self::Drip { .. } => "drip",
            Self::Stall { .. } => "stall",
            Self::Dribble { .. } => "dribble",
            Self::Cut { .. } => "cut",
            Self::Reset { .. } => "reset",
            Self::FlipBit { .. } => "flip-bit",
            Self::HalfOpen => "half-open",
            Self::WrongLength(_) => "wrong-length",
            Self::InterimFlood(_) => "interim-flood",
        }
    }
}
