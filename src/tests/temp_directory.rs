//! A directory for one test, removed at its end, even after a failure.

use std::fs;
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

static MADE: AtomicUsize = AtomicUsize::new(0);

/// Removed by its drop.
#[derive(Debug)]
pub(crate) struct TempDirectory(PathBuf);

impl TempDirectory {
    /// Makes an empty directory. Its name contains `name`, for people who find it after a test was
    /// killed.
    pub(crate) fn new(name: &str) -> Self {
        let (process, number) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(format!("kubecache-{name}-{process}-{number}"));
        fs::create_dir_all(&path).unwrap();
        // Whatever the umask: an outlet refuses a directory that other users can write.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Self(path)
    }
}

impl Deref for TempDirectory {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDirectory {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

#[test]
fn a_directory_is_gone_after_a_test_that_failed() {
    let mut path = PathBuf::new();
    std::thread::scope(|scope| {
        let failing = scope.spawn(|| {
            let directory = TempDirectory::new("failed");
            fs::write(directory.join("file"), "").unwrap();
            path = directory.to_path_buf();
            panic!("as a test does");
        });
        failing.join().unwrap_err();
    });
    assert!(path.is_absolute() && !path.exists());
}
