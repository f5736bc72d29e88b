//! A disk of 64 KiB for a test that fills it, in a process that may mount.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::TempDirectory;
use super::alone::alone_by;

/// The directory of the disk; only the process that may mount has it.
const VARIABLE: &str = "KUBECACHE_SMALL_DISK";

/// A disk that is mounted in this process and its children alone.
pub(crate) struct SmallDisk {
    pub(crate) directory: PathBuf,
}

impl SmallDisk {
    /// Mounts it once more, with these options.
    pub(crate) fn remount(&self, options: &str) {
        self.run("mount", &["-o", &format!("remount,{options}")]);
    }

    /// Takes it away from under those who use it.
    pub(crate) fn take_away(&self) {
        self.run("umount", &["-l"]);
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        let mut command = Command::new(program);
        let status = command.args(arguments).arg(&self.directory).status();
        assert!(status.unwrap().success(), "{program} {arguments:?}");
    }
}

/// Mounts the disk, in a process of [`alone_with_mounts`].
pub(crate) fn small_disk() -> SmallDisk {
    let directory = env::var_os(VARIABLE).expect("the process was started for a disk");
    let directory = PathBuf::from(directory);
    let disk = SmallDisk { directory };
    let options = ["-t", "tmpfs", "-o", "size=64k,mode=700", "none"];
    disk.run("mount", &options);
    disk
}

/// As [`alone`](super::alone), where [`small_disk`] may mount; says why not, if it may nowhere.
pub(crate) fn alone_with_mounts<T: FnOnce()>(test: T) {
    let directory = TempDirectory::new("small-disk");
    if env::var_os(VARIABLE).is_none() {
        let mut mount = in_own_mounts(Path::new("mount"));
        mount.args(["-t", "tmpfs", "none"]).arg(&*directory);
        match mount.output() {
            Ok(done) if done.status.success() => {}
            Ok(done) => {
                let why = String::from_utf8_lossy(&done.stderr);
                println!("skipped: no tmpfs of one's own: {}", why.trim());
                return;
            }
            Err(why) => {
                println!("skipped: unshare(1) does not run: {why}");
                return;
            }
        }
    }
    let this = env::current_exe().expect("this program has a path");
    let mut command = in_own_mounts(&this);
    command.env(VARIABLE, &*directory);
    alone_by(command, test);
}

fn in_own_mounts(program: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.arg("-rm").arg(program);
    command
}
