//! When a client asks the source of its credentials again.

use std::time::Duration;

/// The rules of a source of credentials, and of requests meanwhile.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RenewalRow {
    /// How long a request waits while there are usable credentials.
    pub(crate) wait_with: Duration,
    /// How long a request waits while there are none. Its own limits may be shorter.
    pub(crate) wait_without: Duration,
    /// When the client asks the source again while there are usable credentials.
    pub(crate) retry_with: Duration,
    /// The pauses after failures while there are no usable credentials: the first, and the longest.
    pub(crate) pauses: (Duration, Duration),
    /// A 401 within this time of the last one does not ask the source.
    pub(crate) between_rejections: Duration,
    /// Whether credentials rejected by a 401 stay in use while the source works, and after it
    /// fails.
    pub(crate) keeps_rejected: bool,
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The limit of the plugin ends the wait.
pub(crate) const PLUGIN: RenewalRow = RenewalRow {
    wait_with: Duration::ZERO,
    wait_without: Duration::MAX,
    retry_with: seconds(5),
    pauses: (seconds(1), seconds(30)),
    between_rejections: seconds(10),
    keeps_rejected: false,
};

/// Code of the program has no limit of its own.
pub(crate) const PROGRAM: RenewalRow = RenewalRow {
    wait_without: seconds(60),
    ..PLUGIN
};

/// Reading a file costs a request little, so no request waits; the last good token serves.
pub(crate) const TOKEN_FILE: RenewalRow = RenewalRow {
    wait_with: Duration::from_millis(500),
    wait_without: seconds(10),
    retry_with: seconds(10),
    pauses: (Duration::ZERO, Duration::ZERO),
    between_rejections: Duration::ZERO,
    keeps_rejected: false,
};

/// A kubeconfig's credentials are the only ones, so they serve until there are better ones. The
/// client reads the file again only after a 401.
pub(crate) const KUBECONFIG: RenewalRow = RenewalRow {
    wait_with: seconds(10),
    retry_with: Duration::MAX,
    between_rejections: seconds(10),
    keeps_rejected: true,
    ..TOKEN_FILE
};
