//! The reasons that end a call below ureq, and their conversion through ureq's and std's error
//! types.

use std::fmt;
use std::io;
use std::time::Duration;

use crate::error::Error;

/// Why a call ended without a result.
#[derive(Debug)]
pub(crate) enum Interrupt {
    /// The stop was raised.
    Stopped,
    /// A limit ended.
    Limit(Limit),
    /// No byte is available, and the call must not block.
    WouldBlock,
    /// The connection could not be made, or TLS failed. The error is complete.
    Failed(Error),
    /// The system's own error on the socket.
    Io(io::Error),
    /// An error of ureq about the request or its response.
    Protocol(ureq::Error),
}

/// The limits of a request, each with its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// Name lookup, connect and handshake.
    Connect(Duration),
    /// The same for one dial, which leaves time for another.
    Dial(Duration),
    /// From the connection to the request's last byte, and from there to the response's first byte.
    FirstByte(Duration),
    /// Silence of the first try, from the lookup to the connection or from there to the first byte.
    Silence(Duration),
    /// Between two reads of a body.
    Idle(Duration),
    /// From the first read of a body to its last.
    Body(Duration),
    /// A read of a local file.
    File(Duration),
    /// A run of the source of the client's credentials.
    Credentials(Duration),
    /// The caller's own.
    Deadline,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(limit) | Self::Dial(limit) => {
                write!(f, "no connection within {limit:.1?}")
            }
            Self::FirstByte(limit) => write!(f, "no answer within {limit:.1?}"),
            Self::Silence(limit) => write!(f, "the server was silent for {limit:.1?}"),
            Self::Idle(limit) => write!(f, "nothing came for {limit:.1?} in the middle of a body"),
            Self::Body(limit) => write!(f, "the body did not end within {limit:.1?}"),
            Self::File(limit) => write!(f, "not read within {limit:.1?}"),
            Self::Credentials(limit) => write!(f, "gave no credentials within {limit:.1?}"),
            Self::Deadline => f.write_str("the caller's deadline passed"),
        }
    }
}

impl fmt::Display for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => f.write_str("stopped"),
            Self::Limit(limit) => limit.fmt(f),
            Self::WouldBlock => f.write_str("nothing is there yet"),
            Self::Failed(error) => error.fmt(f),
            Self::Io(error) => error.fmt(f),
            Self::Protocol(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Interrupt {}

impl Interrupt {
    /// How long the server was silent, if silence ended the first try.
    pub(crate) fn silence(&self) -> Option<Duration> {
        if let Self::Limit(Limit::Silence(silence)) = self {
            Some(*silence)
        } else {
            None
        }
    }

    /// Whether the system closed the connection because its peer did not respond.
    pub(crate) fn is_timed_out(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::TimedOut)
    }

    /// Whether the system says that the peer has ended the connection.
    pub(crate) fn is_closed_by_peer(&self) -> bool {
        use io::ErrorKind as Io;
        let Self::Io(error) = self else {
            return false;
        };
        matches!(
            error.kind(),
            Io::UnexpectedEof
                | Io::ConnectionReset
                | Io::ConnectionAborted
                | Io::BrokenPipe
                | Io::NotConnected
        )
    }
}

impl From<Interrupt> for ureq::Error {
    /// ureq has to see the end of the bytes, because it decides whether the body may end there.
    /// Other interrupts pass through it.
    fn from(interrupt: Interrupt) -> Self {
        match interrupt {
            Interrupt::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => Self::Io(error),
            Interrupt::Protocol(error) => error,
            other @ (Interrupt::Stopped
            | Interrupt::Limit(_)
            | Interrupt::WouldBlock
            | Interrupt::Failed(_)
            | Interrupt::Io(_)) => Self::Other(Box::new(other)),
        }
    }
}

impl From<ureq::Error> for Interrupt {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "all but two are the caller's to name"
    )]
    fn from(error: ureq::Error) -> Self {
        match error {
            ureq::Error::Other(inner) => match inner.downcast::<Self>() {
                Ok(interrupt) => *interrupt,
                Err(inner) => Self::Protocol(ureq::Error::Other(inner)),
            },
            ureq::Error::Io(error) => Self::Io(error),
            other => Self::Protocol(other),
        }
    }
}

impl From<io::Error> for Interrupt {
    fn from(error: io::Error) -> Self {
        // ureq wraps its own errors in an io::Error when it is read from, and unwraps them in this
        // conversion.
        Self::from(ureq::Error::from(error))
    }
}

impl From<Interrupt> for io::Error {
    /// ureq and other readers pass it on. `Interrupt::from` takes it out again.
    fn from(interrupt: Interrupt) -> Self {
        Self::other(ureq::Error::from(interrupt))
    }
}

/// Tries a read or a write that never blocks. `None` when it would block.
pub(crate) fn attempt(
    mut run: impl FnMut() -> io::Result<usize>,
) -> Result<Option<usize>, Interrupt> {
    loop {
        match run() {
            Ok(count) => return Ok(Some(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Interrupt::from(error)),
        }
    }
}
