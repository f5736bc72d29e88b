//! Whether TLS files may have changed since they were read, told without reading them.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// No file system's times are coarser: a later change within this time may leave them as they were.
const COARSEST_TIMES: Duration = Duration::from_secs(2);

/// What of a file changes with its content; equal for all files that are not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// Blocks for the look at a local file.
    pub(crate) fn of(path: &Path) -> Self {
        let Ok(metadata) = std::fs::metadata(path) else {
            return Self::default();
        };
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// The files as they were at the looks before.
#[derive(Debug, Default)]
pub(crate) struct WatchedFiles {
    stamps: Vec<Stamp>,
    since: Option<Instant>,
    /// Whether they were read when a change could not hide any more.
    settled: bool,
}

impl WatchedFiles {
    /// Whether they are to be read, given how they look now.
    pub(crate) fn may_have_changed(&mut self, stamps: Vec<Stamp>, now: Instant) -> bool {
        let since = match self.since {
            Some(since) if self.stamps == stamps => since,
            _ => {
                self.stamps = stamps;
                self.since = Some(now);
                self.settled = false;
                return true;
            }
        };
        if self.settled {
            return false;
        }
        self.settled = now.saturating_duration_since(since) >= COARSEST_TIMES;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_after_a_change_until_another_could_not_look_the_same() {
        let mut files = WatchedFiles::default();
        let (before, after) = (
            Stamp::default(),
            Stamp {
                bytes: 1,
                ..Stamp::default()
            },
        );
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
            assert_eq!(
                files.may_have_changed(vec![stamp], now),
                expected,
                "row {row}"
            );
        }
    }

    #[test]
    fn a_file_that_is_written_replaced_or_gone_looks_different() {
        let directory =
            std::env::temp_dir().join(format!("kubecache-stamp-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (path, other) = (directory.join("tls.crt"), directory.join("new"));
        std::fs::write(&path, "one").unwrap();
        let first = Stamp::of(&path);
        assert_eq!(Stamp::of(&path), first);
        std::fs::write(&path, "other").unwrap();
        let second = Stamp::of(&path);
        std::fs::write(&other, "third").unwrap();
        std::fs::rename(&other, &path).unwrap();
        let third = Stamp::of(&path);
        std::fs::remove_dir_all(&directory).unwrap();
        assert_ne!(first, second);
        assert_ne!(second, third);
        assert_eq!(Stamp::of(&path), Stamp::default());
    }
}
