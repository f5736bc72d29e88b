//! Whether TLS files may have changed since the last read, without another read.

use std::fmt;
use std::hash::Hash;
use std::mem;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The coarsest times of a file system: a second change within this time may leave them equal.
const COARSEST_TIMES: Duration = Duration::from_secs(2);

/// Returns the metadata that change with the content of a file; equal for all absent files. Blocks
/// for the look at a local file.
pub(crate) fn stamp(path: &Path) -> impl Hash + PartialEq + fmt::Debug + use<> {
    let file = std::fs::metadata(path).ok()?;
    let modified = (file.mtime(), file.mtime_nsec());
    let changed = (file.ctime(), file.ctime_nsec());
    Some((file.dev(), file.ino(), file.size(), modified, changed))
}

/// The metadata of the files at the last look.
#[derive(Debug, Default)]
pub(crate) struct WatchedFiles {
    /// Their stamp, and since when it is the same.
    seen: Option<(u64, Instant)>,
    /// Whether they were read, and at a time when a second change would show.
    pub(super) settled: bool,
}

impl WatchedFiles {
    /// Whether the files must be read, by their present `stamp`.
    pub(crate) fn may_have_changed(&mut self, stamp: u64, now: Instant) -> bool {
        let Some((_, since)) = self.seen.filter(|(seen, _)| *seen == stamp) else {
            self.seen = Some((stamp, now));
            self.settled = false;
            return true;
        };
        let is_settled = now.saturating_duration_since(since) >= COARSEST_TIMES;
        !mem::replace(&mut self.settled, is_settled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::temp_directory::TempDirectory;

    #[test]
    fn files_are_read_after_a_change_until_another_could_not_look_the_same() {
        let mut files = WatchedFiles::default();
        let (before, after) = (1, 2);
        let start = crate::clock::Clock::system().now();
        let rows = [
            (0, before, true),
            (1, before, true),
            // The last read, and the first that is skipped.
            (2, before, true),
            (2, before, false),
            (99, before, false),
            (99, after, true),
            (100, after, true),
            (101, after, true),
            (102, after, false),
            (103, before, true),
        ];
        for (row, (seconds, stamp, expected)) in rows.into_iter().enumerate() {
            let now = start + Duration::from_secs(seconds);
            assert_eq!(files.may_have_changed(stamp, now), expected, "row {row}");
        }
    }

    #[test]
    fn a_file_that_is_written_replaced_or_gone_looks_different() {
        let directory = TempDirectory::new("stamp");
        let (path, other) = (directory.join("tls.crt"), directory.join("new"));
        std::fs::write(&path, "one").unwrap();
        let first = stamp(&path);
        assert_eq!(stamp(&path), first);
        std::fs::write(&path, "other").unwrap();
        let second = stamp(&path);
        std::fs::write(&other, "third").unwrap();
        std::fs::rename(&other, &path).unwrap();
        let third = stamp(&path);
        std::fs::remove_file(&path).unwrap();
        assert_ne!(first, second);
        assert_ne!(second, third);
        assert_eq!(stamp(&path), stamp(&other), "neither is there");
    }
}
