//! What can be set about a snapshot.

use std::path::PathBuf;
use std::time::Duration;

use super::difference::SnapshotDifference;
use super::key::SnapshotKey;
use crate::error::debug_of;
use crate::hooks::Hook;
use crate::setters::setters;
use crate::sync::Arc;

/// How soon after a write there may be another one.
const INTERVAL: Duration = Duration::from_secs(10);
/// The Secrets and `ConfigMaps` of a full node are some megabytes.
const BYTES_MAX: usize = 32 * 1024 * 1024;
/// By then the pods of a node are known.
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
    /// Names whose objects these are, such as the server's address: a file that was written under
    /// another name is not used. At most 1,024 bytes; it stands in the file as it is. Default:
    /// empty.
    name(name: impl Into<String>) = name.into();

    /// Sets the least time between two writes. Default: 10 seconds.
    interval(interval: Duration);

    /// Sets the most bytes of the file's text. A larger one is neither written nor read. Default:
    /// 32 MiB.
    bytes_max(bytes_max: usize);

    /// Uses no file that was written longer ago. While nothing changes, the file is written again
    /// at half of that age. Default: any age.
    age_max(age_max: Duration) = Some(age_max);

    /// Sets for how long after the start objects are kept that nobody references yet. Default: 10
    /// minutes.
    claim_within(claim_within: Duration);

    /// Sets a hook that is told of each object that changed or went while the process was down.
    ///
    /// It is called once per object, on the thread that brings the server's word, under no lock.
    on_difference(hook: Hook<SnapshotDifference>) = Some(hook);
}

impl SnapshotOptions {
    /// Options with that file and that key, and else the defaults.
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
