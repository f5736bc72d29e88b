//! Allows one writing process at a time: a lock that ends with its process, however that ends, and
//! the name of the process for others to read.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FlockOperation, flock};
use rustix::io::{Errno, retry_on_intr};
use rustix::system::uname;

/// The lock of a file or a directory, until this is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct WriterLock(OwnedFd);

impl WriterLock {
    /// Locks an open file or directory; `None` if this or another process holds the lock. Never
    /// waits.
    pub(crate) fn of(file: impl AsFd) -> io::Result<Option<Self>> {
        let file = file.as_fd().try_clone_to_owned()?;
        match retry_on_intr(|| flock(&file, FlockOperation::NonBlockingLockExclusive)) {
            Ok(()) => Ok(Some(Self(file))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for WriterLock {
    /// A close alone does not unlock it while a forked child, before its exec, still has it.
    fn drop(&mut self) {
        let _unlocked = flock(&self.0, FlockOperation::Unlock).is_ok();
    }
}

/// Names this process and its machine.
pub(crate) fn this_process() -> String {
    let machine = uname();
    let machine = machine.nodename().to_string_lossy();
    format!("{} on {}", std::process::id(), machine.escape_debug())
}
