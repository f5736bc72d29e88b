//! `--snapshot`: what the agent of before had in memory, for a start without a server.

use std::time::SystemTime;

use kubecache::hooks::Hook;
use kubecache::manager::Owner;
use kubecache::snapshot::{Snapshot, SnapshotDifference, SnapshotKeyFile, SnapshotOptions};

use kubecache::Error;

use crate::args::SnapshotFiles;
use crate::managers::Managers;
use crate::tell::tell;

/// Why there is no such flag: there is.
pub(crate) const MISSING: Option<&str> = None;

/// The snapshot, which is written until it is dropped.
pub(crate) struct Keeper(Snapshot);

impl Keeper {
    /// Opens the snapshot of a node of that server, and lets the managers answer from it. Returns
    /// the owners that referenced objects.
    pub(crate) fn open(
        files: &SnapshotFiles,
        name: &str,
        managers: &Managers,
    ) -> Result<(Self, Vec<Owner>), Error> {
        let key = SnapshotKeyFile::new(&files.key);
        let options = SnapshotOptions::new(&files.snapshot, key).name(name);
        let differs = Hook::new(|difference: &SnapshotDifference| tell(&difference.to_string()));
        let snapshot = Snapshot::open(options.on_difference(differs))?;
        let (secrets, config_maps) = managers.shared();
        snapshot.attach(&secrets)?;
        snapshot.attach(&config_maps)?;
        let mut owners = snapshot.restore(&secrets);
        owners.extend(snapshot.restore(&config_maps));
        Ok((Self(snapshot), owners))
    }

    /// When it was written last, its bytes, and whether that failed.
    #[cfg_attr(not(feature = "metrics"), expect(dead_code, reason = "a metric"))]
    pub(crate) fn readings(&self) -> (Option<SystemTime>, usize, bool) {
        let status = self.0.status();
        (status.written, status.bytes, status.last_error.is_some())
    }
}
