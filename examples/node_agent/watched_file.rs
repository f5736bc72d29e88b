//! A file that is looked at again and again: its owner is told when it was changed or replaced.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, select};
use kubecache::{Error, ErrorKind};

/// How often it is looked at.
const PERIOD: Duration = Duration::from_secs(2);

/// A thread that looks at a file until this is dropped. Nothing waits for it: a file system that
/// hangs may never let it end.
#[derive(Debug)]
pub(crate) struct WatchedFile {
    pub(crate) changed: Receiver<()>,
    _stop: Sender<()>,
}

/// What changes with a file.
pub(crate) type Stamp = (u64, u64, u64, [i64; 4]);

/// How a file is now; `None` if it is not there.
pub(crate) fn stamp(path: &Path) -> Option<Stamp> {
    let facts = std::fs::metadata(path).ok()?;
    let (changed, nanos) = (facts.ctime(), facts.ctime_nsec());
    let times = [facts.mtime(), facts.mtime_nsec(), changed, nanos];
    Some((facts.dev(), facts.ino(), facts.size(), times))
}

impl WatchedFile {
    /// Looks at a file that was so `before` its owner read it.
    pub(crate) fn start(path: PathBuf, mut before: Option<Stamp>) -> Result<Self, Error> {
        let (send, changed) = bounded(1);
        let (stop, stopped) = bounded::<()>(0);
        let thread = std::thread::Builder::new().name("agent-config".to_owned());
        let started = thread.spawn(move || {
            loop {
                select! {
                    recv(stopped) -> _ => return,
                    default(PERIOD) => {}
                }
                let now = stamp(&path);
                // Of one that is not there, only its return is told.
                if now.is_some() && now != before {
                    let _full = send.try_send(()).is_err();
                    before = now;
                }
            }
        });
        started.map_err(|error| {
            Error::new(ErrorKind::Resources, "thread agent-config").with_source(error)
        })?;
        Ok(Self {
            changed,
            _stop: stop,
        })
    }
}
