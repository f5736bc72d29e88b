//! What stands in for `--snapshot` in an agent that was built without it.

use std::time::SystemTime;

use kubecache::manager::Owner;
use kubecache::{Error, ErrorKind};

use crate::args::SnapshotFiles;
use crate::managers::Managers;

/// What the flag answers.
pub(crate) const MISSING: Option<&str> =
    Some("this agent has no snapshots; build it with --features snapshot");

/// There is none.
pub(crate) enum Keeper {}

impl Keeper {
    /// Never called: the flag is refused before.
    pub(crate) fn open(
        files: &SnapshotFiles,
        _name: &str,
        _managers: &Managers,
    ) -> Result<(Self, Vec<Owner>), Error> {
        let paths = [&files.snapshot, &files.key].map(|path| path.display().to_string());
        let text = format!("{}: {}", paths.join(", "), MISSING.unwrap_or_default());
        Err(Error::new(ErrorKind::Config, text))
    }

    #[cfg_attr(not(feature = "metrics"), expect(dead_code, reason = "a metric"))]
    pub(crate) fn readings(&self) -> (Option<SystemTime>, usize, bool) {
        match *self {}
    }
}
