//! Whether TLS files may have changed since they were read, told without reading them.

use std::fmt;
use std::hash::Hash;
use std::mem;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// No file system's times are coarser: a later change within this time may leave them as they were.
const COARSEST_TIMES: Duration = Duration::from_secs(2);

/// What of a file changes with its content; equal for all files that are not there. Blocks for the
/// look at a local file.
pub(crate) fn stamp(path: &Path) -> impl Hash + PartialEq + fmt::Debug + use<> {
    let file = std::fs::metadata(path).ok()?;
    let modified = (file.mtime(), file.mtime_nsec());
    let changed = (file.ctime(), file.ctime_nsec());
    Some((file.dev(), file.ino(), file.size(), modified, changed))
}

/// The files as they were at the looks before.
#[derive(Debug, Default)]
pub(crate) struct WatchedFiles {
    /// Their stamp, and since when they look so.
    seen: Option<(u64, Instant)>,
    /// Whether they were read when a change could not hide any more.
    settled: bool,
}

impl WatchedFiles {
    /// Whether they are to be read, given how they look now.
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

    #[test]
    fn files_are_read_after_a_change_until_another_could_not_look_the_same() {
        let mut files = WatchedFiles::default();
        let (before, after) = (1, 2);
        let start = crate::clock::Clock::system().now();
        let rows = [
            (0, before, true),
            (1, before, true),
            // The last read, and the first that is spared.
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
        let directory =
            std::env::temp_dir().join(format!("kubecache-stamp-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (path, other) = (directory.join("tls.crt"), directory.join("new"));
        std::fs::write(&path, "one").unwrap();
        let first = stamp(&path);
        assert_eq!(stamp(&path), first);
        std::fs::write(&path, "other").unwrap();
        let second = stamp(&path);
        std::fs::write(&other, "third").unwrap();
        std::fs::rename(&other, &path).unwrap();
        let third = stamp(&path);
        std::fs::remove_dir_all(&directory).unwrap();
        assert_ne!(first, second);
        assert_ne!(second, third);
        assert_eq!(stamp(&path), stamp(&other), "neither is there");
    }
}
