//! What can be set about a snapshot.

use std::path::PathBuf;
use std::time::Duration;

use super::difference::SnapshotDifference;
use super::key::SnapshotKey;
use crate::error::debug_of;
use crate::hooks::Hook;
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

    /// Names whose objects these are, such as the server's address: a file that was written under
    /// another name is not used. At most 1,024 bytes; it stands in the file as it is. Default:
    /// empty.
    pub fn name(self, name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..self
        }
    }

    /// Sets the least time between two writes. Default: 10 seconds.
    pub fn interval(self, interval: Duration) -> Self {
        Self { interval, ..self }
    }

    /// Sets the most bytes of the file's text. A larger one is neither written nor read. Default:
    /// 32 MiB.
    pub fn bytes_max(self, bytes_max: usize) -> Self {
        Self { bytes_max, ..self }
    }

    /// Uses no file that was written longer ago. While nothing changes, the file is written again
    /// at half of that age. Default: any age.
    pub fn age_max(self, age_max: Duration) -> Self {
        Self {
            age_max: Some(age_max),
            ..self
        }
    }

    /// Sets for how long after the start objects are kept that nobody references yet. Default: 10
    /// minutes.
    pub fn claim_within(self, claim_within: Duration) -> Self {
        Self {
            claim_within,
            ..self
        }
    }

    /// Sets a hook that is told of each object that changed or went while the process was down.
    ///
    /// It is called once per object, on the thread that brings the server's word, under no lock.
    pub fn on_difference(self, hook: Hook<SnapshotDifference>) -> Self {
        Self {
            on_difference: Some(hook),
            ..self
        }
    }
}

debug_of!([] SnapshotOptions, |it| path: it.path, name: it.name, ..);
