//! A file that is looked at again and again: its owner is told when it was changed or replaced.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
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

impl WatchedFile {
    pub(crate) fn start(path: PathBuf) -> Result<Self, Error> {
        let (send, changed) = bounded(1);
        let (stop, stopped) = bounded::<()>(0);
        let thread = std::thread::Builder::new().name("agent-config".to_owned());
        let started = thread.spawn(move || {
            // Of one that is not there, only its return is told.
            let look = || {
                let facts = std::fs::metadata(&path).ok()?;
                let times = (
                    facts.mtime(),
                    facts.mtime_nsec(),
                    facts.ctime(),
                    facts.ctime_nsec(),
                );
                Some((facts.dev(), facts.ino(), facts.size(), times))
            };
            let mut before = look();
            loop {
                select! {
                    recv(stopped) -> _ => return,
                    default(PERIOD) => {}
                }
                let now = look();
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
