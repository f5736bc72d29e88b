//! Tests of threads that fail instead of hanging: what they leave behind, and how long they may
//! take.

use std::time::Duration;

use crossbeam_channel::{Receiver, after, select, unbounded};

use crate::worker::Worker;

/// What a test may take on a busy machine; one that takes longer hangs.
const LIMIT: Duration = Duration::from_mins(5);

/// A thread of a test, joined at its end; that of a test that has failed may wait for ever, and is
/// left behind.
pub(super) struct Apart(Option<Worker>);

impl Drop for Apart {
    fn drop(&mut self) {
        let worker = self.0.take().unwrap();
        if std::thread::panicking() {
            worker.abandon();
        }
    }
}

/// Does something on a thread of its own; the receiver gets what comes of it.
pub(super) fn apart<T: Send + 'static>(
    act: impl FnOnce() -> T + Send + 'static,
) -> (Apart, Receiver<T>) {
    let (send, receiver) = unbounded();
    let worker = Worker::spawn("t-apart", move |_| drop(send.send(act()))).unwrap();
    (Apart(Some(worker)), receiver)
}

/// Bounds all waits of a test at once: while it is held for too long, the test's name is told and
/// the process ends.
///
/// The waits themselves have deadlines of a fake clock, which stands still when a test hangs, or
/// none.
pub(super) struct Patience {
    _thread: Worker,
}

impl Patience {
    pub(super) fn new() -> Self {
        let test = std::thread::current().name().unwrap_or("?").to_owned();
        let thread = Worker::spawn("t-patience", move |stop| {
            select! {
                recv(stop.channel()) -> _ => {}
                recv(after(LIMIT)) -> _ => {
                    eprintln!("{test} hangs: it has not ended after {LIMIT:?}");
                    std::process::abort();
                }
            }
        });
        Self {
            _thread: thread.unwrap(),
        }
    }
}
