//! Classifies the answers to failed requests, as far as the policy needs.

use std::error::Error as StdError;
use std::io;

use crate::error::{Error, ErrorKind};
use crate::object::{Reason, Status};

/// The answer to a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerKind {
    /// No process listens at the server's address.
    Refused,
    /// The connection failed, or ended in the answer.
    Cut,
    /// A kept connection had ended before the request, or before any part of its answer.
    Ended,
    /// A time limit passed.
    Silent,
    /// The request was not sent: an unknown name, configuration, credentials, TLS, the system, a
    /// stop, a panic.
    Unsent,
    /// The answer breaks the protocol: it is not JSON, or of another type.
    Malformed,
    /// The answer is larger than the options allow.
    OverLimit,
    Unauthorized,
    Forbidden,
    NotFound,
    NotAcceptable,
    /// 400 and 422: to a request at a version, these may mean that the server cannot read that
    /// version.
    Unreadable,
    /// The server's history no longer has the version, or the page's token: 410 with `Expired`.
    Expired,
    /// 410 with `Gone`, or without a reason.
    Gone,
    /// The version lies in the server's future (RF-13).
    TooLarge,
    TooMany,
    /// The server had an internal error (RF-38).
    Internal,
    /// 502, 503, 504, and 500 for another reason.
    Unavailable,
    /// Another answer of the server, such as 405, 408, 409 or 415.
    Other,
}

impl AnswerKind {
    /// Classifies an error.
    pub(crate) fn of(error: &Error) -> Self {
        use ErrorKind as Kind;
        let status = error.status();
        match error.kind() {
            Kind::Expired if status.is_some_and(|status| status.reason() == Reason::Expired) => {
                Self::Expired
            }
            Kind::Expired => Self::Gone,
            _ if status.is_some_and(Status::is_too_large_resource_version) => Self::TooLarge,
            Kind::TooManyRequests => Self::TooMany,
            _ if status.is_some_and(Status::is_internal_error) => Self::Internal,
            Kind::TooLarge => Self::OverLimit,
            Kind::Unreachable if is_refused(error) => Self::Refused,
            // The server's name is unknown.
            Kind::Unreachable if is_io(error, &[io::ErrorKind::NotFound]) => Self::Unsent,
            Kind::Unreachable => Self::Cut,
            Kind::Timeout => Self::Silent,
            Kind::Protocol if status.is_none() && is_io(error, &CUT) => Self::Cut,
            Kind::Tls
            | Kind::Resources
            | Kind::Config
            | Kind::Credentials
            | Kind::NotConfigured
            | Kind::Panicked
            | Kind::Stopped => Self::Unsent,
            Kind::NotFound
            | Kind::Forbidden
            | Kind::Unauthorized
            | Kind::Api
            | Kind::NotRegistered
            | Kind::NotSynced
            | Kind::Protocol
            | Kind::Stale
            | Kind::Undecodable
            | Kind::TooManyReflectors => status.map_or(Self::Malformed, Self::of_status),
        }
    }

    fn of_status(status: &Status) -> Self {
        match (status.reason(), status.code()) {
            (Reason::Unauthorized, _) => Self::Unauthorized,
            (Reason::Forbidden, _) => Self::Forbidden,
            (Reason::NotFound, _) => Self::NotFound,
            (Reason::BadRequest | Reason::Invalid, _) | (_, 400 | 422) => Self::Unreadable,
            (_, 406) => Self::NotAcceptable,
            (Reason::Timeout | Reason::ServerTimeout | Reason::ServiceUnavailable, _)
            | (_, 500 | 502..=504) => Self::Unavailable,
            _ => Self::Other,
        }
    }
}

/// The system's error kinds for a connection that ended.
const CUT: [io::ErrorKind; 4] = [
    io::ErrorKind::UnexpectedEof,
    io::ErrorKind::ConnectionReset,
    io::ErrorKind::ConnectionAborted,
    io::ErrorKind::BrokenPipe,
];

fn is_io(error: &Error, kinds: &[io::ErrorKind]) -> bool {
    let first: &(dyn StdError + 'static) = error;
    std::iter::successors(Some(first), |&current| current.source())
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| kinds.contains(&cause.kind()))
}

fn is_refused(error: &Error) -> bool {
    let text = error.to_string().to_ascii_lowercase();
    is_io(error, &[io::ErrorKind::ConnectionRefused]) || text.contains("connection refused")
}
