//! What a failure asks of the reflector: one table from where it happened and what it was to what is done about it.

use std::error::Error as StdError;
use std::io;

use crate::error::{Error, ErrorKind};
use crate::object::Reason;

/// Where a failure happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Site {
    List,
    OpenWatch,
    InWatch,
    /// A streamed list: at its opening, or before its final bookmark.
    Stream,
}

/// What a failure was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// The version fell out of the server's history (RF-14).
    Expired,
    /// The version lies in the server's future (RF-13).
    TooLarge,
    /// 429.
    TooMany,
    /// The server failed inside (RF-38).
    Internal,
    /// Nobody listens at the server's address.
    Refused,
    /// More came than the options allow.
    OverLimit,
    /// Another answer of the server.
    Answer,
    /// No answer: the transport failed.
    Silence,
}

/// What is done about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disposition {
    /// A backoff, then a new pass.
    Relist,
    /// As `Relist`; the history is known to have expired (RF-34, RF-41).
    RelistExpired,
    /// A backoff, then the watch again at the last version.
    Rewatch,
    /// The watch again without a list while the retry window is open, else as `Relist` (RF-38).
    RewatchInWindow,
    /// The same at the most recent version, at once (RF-12, WL-8), once per pass.
    MostRecent,
    /// A backoff, then the streamed list again (WL-7).
    Restream,
    /// A plain list in this pass, at once (WL-9), once per pass.
    PlainList,
    /// A backoff, then a plain list: no answer came that would call for another request at once (B9).
    PlainListLater,
    /// As `PlainListLater`, and no streamed list again: the next would be as large, and one in pages may fit.
    PlainListsLater,
}

pub(crate) fn classify(error: &Error) -> Class {
    let Some(status) = error.status() else {
        return match error.kind() {
            ErrorKind::Unreachable if is_refused(error) => Class::Refused,
            ErrorKind::Expired => Class::Expired,
            ErrorKind::TooManyRequests => Class::TooMany,
            ErrorKind::TooLarge => Class::OverLimit,
            ErrorKind::Unreachable
            | ErrorKind::Timeout
            | ErrorKind::Tls
            | ErrorKind::Resources
            | ErrorKind::Config
            | ErrorKind::NotConfigured
            | ErrorKind::Panicked
            | ErrorKind::Stopped => Class::Silence,
            ErrorKind::NotFound
            | ErrorKind::Forbidden
            | ErrorKind::Unauthorized
            | ErrorKind::Api
            | ErrorKind::NotRegistered
            | ErrorKind::NotSynced
            | ErrorKind::Protocol
            | ErrorKind::Stale
            | ErrorKind::Undecodable
            | ErrorKind::TooManyReflectors => Class::Answer,
        };
    };
    if status.is_expired() {
        Class::Expired
    } else if status.is_too_large_resource_version() {
        Class::TooLarge
    } else if status.reason() == Reason::TooManyRequests {
        Class::TooMany
    } else if status.is_internal_error() {
        Class::Internal
    } else {
        Class::Answer
    }
}

/// Whether a page's failure is that its continue token expired: the reason `Expired` alone, not `Gone` (PG-6).
pub(crate) fn is_expired_page(error: &Error) -> bool {
    error
        .status()
        .is_some_and(|status| status.reason() == Reason::Expired)
}

pub(crate) fn disposition(site: Site, error: &Error) -> Disposition {
    use Class::{Answer, Expired, Internal, OverLimit, Refused, Silence, TooLarge, TooMany};
    let class = classify(error);
    // RS-1: a server error that names a wait is about the request, not about what is known.
    let asks_to_wait = matches!(class, Internal | Answer) && error.retry_after().is_some();
    match (site, class) {
        (Site::List | Site::Stream, Expired | TooLarge) => Disposition::MostRecent,
        (Site::OpenWatch | Site::InWatch, Expired) => Disposition::RelistExpired,
        (Site::OpenWatch | Site::InWatch, TooMany | Refused) => Disposition::Rewatch,
        (Site::OpenWatch, Internal | Answer) if asks_to_wait => Disposition::Rewatch,
        (Site::InWatch, Internal) => Disposition::RewatchInWindow,
        (Site::List, TooMany | Internal | Refused | OverLimit | Answer | Silence)
        | (Site::OpenWatch, TooLarge | Internal | OverLimit | Answer | Silence)
        | (Site::InWatch, TooLarge | OverLimit | Answer | Silence) => Disposition::Relist,
        (Site::Stream, TooMany | Refused) => Disposition::Restream,
        (Site::Stream, Internal | Answer) if asks_to_wait => Disposition::Restream,
        (Site::Stream, Internal | Answer) => Disposition::PlainList,
        (Site::Stream, Silence) => Disposition::PlainListLater,
        (Site::Stream, OverLimit) => Disposition::PlainListsLater,
    }
}

fn is_refused(error: &Error) -> bool {
    let mut next: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(current) = next {
        if current
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        {
            return true;
        }
        next = current.source();
    }
    error
        .to_string()
        .to_ascii_lowercase()
        .contains("connection refused")
}
