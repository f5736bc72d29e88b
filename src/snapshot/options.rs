//! The options of a snapshot.

use std::path::PathBuf;
use std::time::Duration;

use super::difference::SnapshotDifference;
use super::key::SnapshotKey;
use crate::error::debug_of;
use crate::hooks::Hook;
use crate::setters::setters;
use crate::sync::Arc;

/// The minimum time between two writes.
const INTERVAL: Duration = Duration::from_secs(10);
/// The Secrets and `ConfigMaps` of a full node take a few megabytes.
const BYTES_MAX: usize = 32 * 1024 * 1024;
/// By then the program knows the pods of its node.
const CLAIM_WITHIN: Duration = Duration::from_secs(10 * 60);

/// Options of a [`Snapshot`](super::Snapshot).
#[derive(Clone)]
#[must_use]
pub struct SnapshotOptions {
    pub(super) path: PathBuf,
    pub(super) key: Arc<dyn SnapshotKey>,
    pub(super) name: String,
    pub(super) interval: Duration,
    pub(super) bytes_max: usize,
    pub(super) age_max: Option<Duration>,
    pub(super) claim_within: Duration,
    pub(super) on_difference: Option<Hook<SnapshotDifference>>,
}

setters! { [] SnapshotOptions;
    /// Sets a name for the source of the objects, such as the server's address. The snapshot does
    /// not use a file with another name. At most 1,024 bytes; the file contains it in plain text.
    /// Default: empty.
    name(name: impl Into<String>) = name.into();

    /// Sets the minimum time between two writes, at least 10 ms. Default: 10 seconds.
    interval(interval: Duration) = interval.max(Duration::from_millis(10));

    /// Sets the maximum size of the file's text, in bytes. The snapshot neither writes nor reads a
    /// larger one. Default: 32 MiB.
    bytes_max(bytes_max: usize);

    /// Sets the maximum age of a file that the snapshot uses. While nothing changes, it writes the
    /// file again at half that age. Default: any age.
    age_max(age_max: Duration) = Some(age_max);

    /// Sets how long after the start the snapshot keeps objects that no owner references yet, and
    /// those of kinds whose managers are not attached yet. Default: 10 minutes.
    claim_within(claim_within: Duration);

    /// Sets a hook for each object that changed or went while the process was down.
    ///
    /// The thread with the server's answer calls it once per object, without a lock.
    on_difference(hook: Hook<SnapshotDifference>) = Some(hook);
}

impl SnapshotOptions {
    /// Makes options with that file and key, and otherwise the defaults.
    pub fn new(path: impl Into<PathBuf>, key: impl SnapshotKey) -> Self {
        Self {
            path: path.into(),
            key: Arc::new(key),
            name: String::new(),
            interval: INTERVAL,
            bytes_max: BYTES_MAX,
            age_max: None,
            claim_within: CLAIM_WITHIN,
            on_difference: None,
        }
    }
}

debug_of!([] SnapshotOptions, |it| path: it.path, name: it.name, ..);
