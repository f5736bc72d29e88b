//! A file system that hangs: one that nobody serves, as of a machine that is gone.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::TempDirectory;
use super::example::Killed;

/// It hangs whoever looks into it, until it is dropped.
pub(crate) struct HungMount {
    directory: TempDirectory,
    _server: Killed,
}

impl HungMount {
    /// Mounts it, in a process of [`alone_with_mounts`](super::small_disk::alone_with_mounts);
    /// `None` where it cannot, and says why.
    pub(crate) fn new() -> Option<Self> {
        let directory = TempDirectory::new("hung");
        let options = "fd=3,rootmode=40000,user_id=0,group_id=0";
        let script = format!(
            "exec 3<>/dev/fuse && mount -i -t fuse -o {options} none \"$0\" && echo mounted && \
             exec sleep 3600"
        );
        let mut server = Command::new("sh");
        server.args(["-c", &script]).arg(&*directory);
        let mut server = server.stdout(Stdio::piped()).spawn().unwrap();
        let stdout = server.stdout.take().unwrap();
        let server = Killed(server);
        if BufReader::new(stdout).lines().next().is_none() {
            println!("skipped: no file system of one's own");
            return None;
        }
        Some(Self {
            directory,
            _server: server,
        })
    }

    /// A file there.
    pub(crate) fn file(&self) -> PathBuf {
        self.directory.join("file")
    }
}

impl Drop for HungMount {
    fn drop(&mut self) {
        let mut unmount = Command::new("umount");
        drop(unmount.arg("-l").arg(&*self.directory).status());
    }
}
