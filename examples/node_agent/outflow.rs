//! A queue before standard output or standard error, with a thread of its own that writes. A reader
//! that takes nothing holds up that thread alone: old pieces make room for new ones, and are
//! counted.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::sync::LazyLock;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, after, bounded, select};
use kubecache::worker::Worker;
use log::Level;
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::log_format;

/// The rows.
pub(crate) static STDOUT: LazyLock<Outflow> = LazyLock::new(|| {
    let open = || io::stdout().as_fd().try_clone_to_owned().map(File::from);
    Outflow::new("agent-rows", "rows of the output", usize::MAX, open)
});

/// The log, and what the program tells beside its rows.
pub(crate) static STDERR: LazyLock<Outflow> = LazyLock::new(|| {
    let open = || io::stderr().as_fd().try_clone_to_owned().map(File::from);
    Outflow {
        goes_on: true,
        ..Outflow::new("agent-log", "lines of the log", LINES_MAX, open)
    }
});

/// More lines than a moment has, of a program that logs everything.
const LINES_MAX: usize = 10_000;

/// So much is written at once. It cannot be dropped any more.
const WRITE_BYTES: usize = 64 * 1024;

/// How long a reader that takes nothing has for the rest when the program ends, and how often it is
/// looked at while it takes something.
const LAST_WAIT: Duration = Duration::from_millis(250);
const LAST_LOOKS: usize = 20;

/// The pause of the log after an error of the disk, such as a full one.
const PAUSE: Duration = Duration::from_secs(1);

/// The queue and its thread, which ends with the process.
pub(crate) struct Outflow {
    thread_name: &'static str,
    /// What the pieces are, for messages.
    what: &'static str,
    /// Whether it outlasts errors of the disk, which lose some pieces.
    goes_on: bool,
    open: fn() -> io::Result<File>,
    state: Mutex<State>,
    filled: Condvar,
    idle: (Sender<()>, Receiver<()>),
    closed: (Sender<io::Error>, Receiver<io::Error>),
}

#[derive(Default)]
struct State {
    pieces: VecDeque<Vec<u8>>,
    pieces_max: usize,
    /// How many are being written.
    in_write: usize,
    /// How many were dropped since the queue was last empty, and since the start.
    lost: u64,
    dropped: u64,
    is_closed: bool,
    thread: Option<Worker>,
}

impl Outflow {
    fn new(
        thread_name: &'static str,
        what: &'static str,
        pieces_max: usize,
        open: fn() -> io::Result<File>,
    ) -> Self {
        let state = State {
            pieces_max,
            ..State::default()
        };
        Self {
            thread_name,
            what,
            goes_on: false,
            open,
            state: Mutex::new(state),
            filled: Condvar::new(),
            idle: bounded(1),
            closed: bounded(1),
        }
    }

    /// What is written to it is a piece once it is flushed.
    pub(crate) fn writer(&'static self) -> Pieces {
        Pieces {
            to: self,
            piece: Vec::new(),
        }
    }

    /// From now on, at most so many pieces wait.
    pub(crate) fn keep_at_most(&self, pieces: usize) {
        self.state.lock().pieces_max = pieces;
    }

    /// Puts a piece into the queue. Never waits for a reader.
    pub(crate) fn push(&'static self, piece: Vec<u8>) {
        let mut state = self.state.lock();
        if state.is_closed {
            return;
        }
        if state.thread.is_none() {
            match Worker::spawn(self.thread_name, move |_stop| self.write_all()) {
                Ok(thread) => state.thread = Some(thread),
                Err(_no_thread) => return drop((self.open)().map(|mut to| to.write_all(&piece))),
            }
        }
        let lost = state.lost;
        while state.pieces.len() >= state.pieces_max.max(1) {
            state.pieces.pop_front();
            state.lost = state.lost.saturating_add(1);
            state.dropped = state.dropped.saturating_add(1);
        }
        let begins_to_drop = lost == 0 && state.lost > 0;
        state.pieces.push_back(piece);
        drop(state);
        self.filled.notify_one();
        if begins_to_drop {
            let what = self.what;
            warn(&format!(
                "the reader is too slow: the oldest {what} are dropped"
            ));
        }
    }

    /// Whether all of it was written.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.pieces.is_empty() && state.in_write == 0
    }

    /// Has a message when all of it was written.
    pub(crate) fn idle(&self) -> &Receiver<()> {
        &self.idle.1
    }

    /// Has a message when it cannot be written any more.
    pub(crate) fn closed(&self) -> &Receiver<io::Error> {
        &self.closed.1
    }

    /// How many pieces were dropped since the start.
    #[cfg_attr(not(feature = "metrics"), expect(dead_code, reason = "a metric"))]
    pub(crate) fn dropped(&self) -> u64 {
        self.state.lock().dropped
    }

    /// Waits until all of it was written, or the reader has had its time. Says how many pieces did
    /// not reach it.
    pub(crate) fn end(&self) {
        let mut looks = 0..LAST_LOOKS;
        while !self.is_idle() {
            select! {
                recv(self.idle()) -> _ => {}
                recv(after(LAST_WAIT)) -> _ => if looks.next().is_none() || self.is_full() {
                    break;
                },
            }
        }
        let mut state = self.state.lock();
        let waiting = state.pieces.len().saturating_add(state.in_write);
        let lost = std::mem::take(&mut state.lost);
        let lost = lost.saturating_add(u64::try_from(waiting).unwrap_or(u64::MAX));
        let is_closed = std::mem::replace(&mut state.is_closed, true);
        drop(state);
        if lost > 0 && !is_closed {
            self.tell_lost(lost);
        }
    }

    /// Whether a write would block now.
    fn is_full(&self) -> bool {
        let now = Timespec::default();
        (self.open)().is_ok_and(|to| {
            let ready = poll(&mut [PollFd::new(&to, PollFlags::OUT)], Some(&now));
            matches!(ready, Ok(0))
        })
    }

    fn tell_lost(&self, lost: u64) {
        let what = self.what;
        warn(&format!(
            "{lost} {what} were dropped: the reader was too slow"
        ));
    }

    /// The thread: writes what comes, until it cannot.
    fn write_all(&self) {
        let mut to = (self.open)();
        loop {
            let batch = self.next_batch();
            // Descriptors may have been short.
            if to.is_err() {
                to = (self.open)();
            }
            let written = to
                .as_mut()
                .map_err(|error| io::Error::from(error.kind()))
                .and_then(|to| write(to, &batch));
            let mut state = self.state.lock();
            let in_write = u64::try_from(std::mem::take(&mut state.in_write));
            if let Err(error) = written {
                if self.outlasts(&error) {
                    let count = in_write.unwrap_or_default();
                    state.lost = state.lost.saturating_add(count);
                    state.dropped = state.dropped.saturating_add(count);
                    drop(state);
                    let _over = after(PAUSE).recv();
                    continue;
                }
                state.is_closed = true;
                state.pieces.clear();
                drop(state);
                let _told_before = self.closed.0.try_send(error).is_err();
                let _full = self.idle.0.try_send(()).is_err();
                return;
            }
            if !state.pieces.is_empty() {
                continue;
            }
            let lost = std::mem::take(&mut state.lost);
            drop(state);
            // A full channel holds the message this one would have been.
            let _full = self.idle.0.try_send(()).is_err();
            if lost > 0 {
                self.tell_lost(lost);
            }
        }
    }

    /// Whether a later write may succeed.
    fn outlasts(&self, error: &io::Error) -> bool {
        self.goes_on && error.kind() != io::ErrorKind::BrokenPipe
    }

    /// Blocks until there is something to write.
    fn next_batch(&self) -> Vec<u8> {
        let mut state = self.state.lock();
        while state.pieces.is_empty() {
            self.filled.wait(&mut state);
        }
        let mut batch = Vec::new();
        while batch.len() < WRITE_BYTES
            && let Some(piece) = state.pieces.pop_front()
        {
            batch.extend(piece);
            state.in_write = state.in_write.saturating_add(1);
        }
        batch
    }
}

fn warn(text: &str) {
    STDERR.push(log_format::said(Level::Warn, &format!("warning: {text}")));
}

/// Writes all of it, also where another program has made the descriptor one that does not block.
fn write(to: &mut File, mut rest: &[u8]) -> io::Result<()> {
    while !rest.is_empty() {
        match to.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => rest = rest.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // An error of it is the next write's.
                let _ready = poll(&mut [PollFd::new(to, PollFlags::OUT)], None).is_ok();
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Makes pieces of what is written.
pub(crate) struct Pieces {
    to: &'static Outflow,
    piece: Vec<u8>,
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.piece.is_empty() {
            self.to.push(std::mem::take(&mut self.piece));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, PipeWriter, Read as _, pipe};
    use std::os::fd::OwnedFd;

    use super::*;

    static PIPE: LazyLock<(PipeReader, PipeWriter)> = LazyLock::new(|| pipe().unwrap());

    #[test]
    fn old_pieces_make_room_for_new_ones_and_are_counted() {
        let open = || PIPE.1.try_clone().map(OwnedFd::from).map(File::from);
        let outflow = Outflow::new("t-rows", "rows", 3, open);
        let outflow: &'static Outflow = Box::leak(Box::new(outflow));
        // More than a pipe has room for.
        let large = vec![b'x'; 1024 * 1024];
        outflow.push(large.clone());
        while outflow.state.lock().in_write == 0 {
            std::thread::yield_now();
        }
        for piece in ["a", "b", "c", "d", "e"] {
            let mut writer = outflow.writer();
            writer.write_all(piece.as_bytes()).unwrap();
            writer.flush().unwrap();
        }
        while !outflow.is_full() {
            std::thread::yield_now();
        }
        assert!(!outflow.is_idle());
        let mut read = vec![0; large.len() + 3];
        (&PIPE.0).read_exact(&mut read).unwrap();
        assert_eq!(read, [&large[..], b"cde"].concat());
        outflow.end();
        assert!(outflow.is_idle());
        assert_eq!(outflow.state.lock().dropped, 2);
    }

    #[test]
    fn an_error_of_the_disk_costs_the_log_lines_and_ends_the_rows() {
        for goes_on in [true, false] {
            // A file that is open for reading takes no bytes.
            let open = || File::open("/dev/null");
            let outflow = Outflow {
                goes_on,
                ..Outflow::new("t-log", "lines", 3, open)
            };
            let outflow: &'static Outflow = Box::leak(Box::new(outflow));
            outflow.push(b"a".to_vec());
            if goes_on {
                while outflow.state.lock().dropped == 0 {
                    std::thread::yield_now();
                }
                outflow.push(b"b".to_vec());
                while outflow.state.lock().dropped == 1 {
                    std::thread::yield_now();
                }
            } else {
                outflow.closed().recv().unwrap();
            }
            assert_eq!(outflow.state.lock().is_closed, !goes_on);
        }
    }
}
