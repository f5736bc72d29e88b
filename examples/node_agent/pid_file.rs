//! `--signal-on-change`: the process whose number a file holds.

use std::path::PathBuf;
use std::time::Duration;

use crossbeam_channel::{Receiver, TryRecvError, select};
use kubecache::Error;
use kubecache::local_file::read_text_detached;
use kubecache::worker::StopToken;
use rustix::process::{Pid, Signal, kill_process};

/// A number and an end of line.
const FILE_BYTES_MAX: u64 = 64;

/// A read from a disk that works takes a small part of it.
const READ_WAIT: Duration = Duration::from_secs(5);

/// The file, and a read of it that has not ended: there is one at a time.
pub(crate) struct PidFile {
    path: PathBuf,
    reading: Option<Receiver<Result<String, Error>>>,
}

impl PidFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self {
            path,
            reading: None,
        }
    }

    /// Sends SIGHUP to the process whose number the file holds. The stop ends the wait for a file
    /// system that hangs.
    pub(crate) fn signal(&mut self, stop: &StopToken) -> Result<(), String> {
        let before = self.reading.take();
        let is_empty = |read: &Receiver<_>| matches!(read.try_recv(), Err(TryRecvError::Empty));
        let read = before
            .filter(is_empty)
            .unwrap_or_else(|| read_text_detached(self.path.clone(), FILE_BYTES_MAX));
        let text = select! {
            recv(read) -> text => text.map_err(|error| error.to_string())?,
            recv(stop.channel()) -> _ => return Ok(()),
            default(READ_WAIT) => {
                self.reading = Some(read);
                let path = self.path.display();
                return Err(format!("{path} is not read after {READ_WAIT:?}: does its disk hang?"));
            }
        };
        let text = text.map_err(|error| error.to_string())?;
        let signalled = process(text.trim()).and_then(|pid| {
            let number = pid.as_raw_nonzero();
            kill_process(pid, Signal::HUP).map_err(|error| format!("process {number}: {error}"))
        });
        signalled.map_err(|why| format!("{}: {why}", self.path.display()))
    }
}

/// To the system, 0 and negative numbers are groups of processes or all of them, and 1 is the
/// process that starts the others.
fn process(text: &str) -> Result<Pid, String> {
    let number = text.parse().ok().filter(|number: &i32| *number > 1);
    number.and_then(Pid::from_raw).ok_or_else(|| {
        format!("it holds {text:?}, and no number of a process: write one from 2 on")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_a_number_from_2_on() {
        assert_eq!(process("1234").unwrap().as_raw_nonzero().get(), 1234);
        for wrong in ["", "0", "1", "-1", "-1234", "2147483648", "12 13", "sshd"] {
            let error = process(wrong).unwrap_err();
            assert!(
                error.starts_with(&format!("it holds {wrong:?}, ")),
                "{error}"
            );
        }
    }
}
