//! When what gives a client's credentials is asked again.

use std::time::Duration;

/// How a source of credentials is asked, and what a request does meanwhile.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RenewalRow {
    /// How long a request waits while there are credentials that can be used.
    pub(crate) wait_with: Duration,
    /// How long a request waits while there are none; its own limits may be shorter.
    pub(crate) wait_without: Duration,
    /// When the source is asked again while there are credentials that can be used.
    pub(crate) retry_with: Duration,
    /// The pauses after failures while there are none: the first, and the longest.
    pub(crate) pauses: (Duration, Duration),
    /// A 401 within this time of the last one asks nothing.
    pub(crate) between_rejections: Duration,
    /// Whether what a 401 rejects stays in use while the source works, and after it fails.
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

/// A file that cannot be read costs a request little, so nothing but the last good token waits.
pub(crate) const TOKEN_FILE: RenewalRow = RenewalRow {
    wait_with: Duration::from_millis(500),
    wait_without: seconds(10),
    retry_with: seconds(10),
    pauses: (Duration::ZERO, Duration::ZERO),
    between_rejections: Duration::ZERO,
    keeps_rejected: false,
};

/// What stands in a kubeconfig is all that there is, so that it serves until there is a better one.
/// The file is read after a 401 alone.
pub(crate) const KUBECONFIG: RenewalRow = RenewalRow {
    wait_with: seconds(10),
    retry_with: Duration::MAX,
    between_rejections: seconds(10),
    keeps_rejected: true,
    ..TOKEN_FILE
};
