//! What a failure was, as far as the reflector decides by it.

use std::error::Error as StdError;
use std::io;

use crate::error::{Error, ErrorKind};
use crate::object::{Reason, Status};

/// What a failure was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureClass {
    /// The version fell out of the server's history (RF-14).
    Expired,
    /// The version lies in the server's future (RF-13).
    TooLarge,
    /// 429.
    TooMany,
    /// The server failed inside (RF-38).
    Internal,
    /// No process listens at the server's address.
    Refused,
    /// More came than the options allow.
    OverLimit,
    /// Another answer of the server.
    Answer,
    /// No answer: the transport failed.
    Silence,
}

impl FailureClass {
    /// Whether the same request is right once some time has passed: the server lives, or comes
    /// back, and keeps its history (RS-1: a server error that names a wait is about the request,
    /// not about what is known).
    pub(crate) fn calls_for_the_same(self, error: &Error) -> bool {
        match self {
            Self::TooMany | Self::Refused => true,
            Self::Internal | Self::Answer => error.retry_after().is_some(),
            Self::Expired | Self::TooLarge | Self::OverLimit | Self::Silence => false,
        }
    }

    /// Whether a list at that version is refused, and one at the most recent version is not (RF-12,
    /// WL-8).
    pub(crate) fn calls_for_most_recent(self) -> bool {
        matches!(self, Self::Expired | Self::TooLarge)
    }
}

pub(crate) fn classify(error: &Error) -> FailureClass {
    let status = error.status();
    let is = |kinds: &[ErrorKind]| kinds.contains(&error.kind());
    let is_silence = is(&[
        ErrorKind::Unreachable,
        ErrorKind::Timeout,
        ErrorKind::Tls,
        ErrorKind::Resources,
        ErrorKind::Config,
        ErrorKind::Credentials,
        ErrorKind::NotConfigured,
        ErrorKind::Panicked,
        ErrorKind::Stopped,
    ]);
    if is(&[ErrorKind::Expired]) {
        FailureClass::Expired
    } else if status.is_some_and(Status::is_too_large_resource_version) {
        FailureClass::TooLarge
    } else if is(&[ErrorKind::TooManyRequests]) {
        FailureClass::TooMany
    } else if status.is_some_and(Status::is_internal_error) {
        FailureClass::Internal
    } else if is(&[ErrorKind::TooLarge]) {
        FailureClass::OverLimit
    } else if is(&[ErrorKind::Unreachable]) && is_refused(error) {
        FailureClass::Refused
    } else if is_silence {
        FailureClass::Silence
    } else {
        FailureClass::Answer
    }
}

/// Whether a page's failure is that its continue token expired: the reason `Expired` alone, not
/// `Gone` (PG-6).
pub(crate) fn is_expired_page(error: &Error) -> bool {
    error
        .status()
        .is_some_and(|status| status.reason() == Reason::Expired)
}

fn is_refused(error: &Error) -> bool {
    let mut next: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(current) = next {
        let io = current.downcast_ref::<io::Error>().map(io::Error::kind);
        if io == Some(io::ErrorKind::ConnectionRefused) {
            return true;
        }
        next = current.source();
    }
    let text = error.to_string().to_ascii_lowercase();
    text.contains("connection refused")
}
