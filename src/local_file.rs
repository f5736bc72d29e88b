//! Reads whole local files up to a maximum size. They must be plain files: it waits for no pipe,
//! and reads no device.
//!
//! For files that other programs can replace, such as a token or a process number.

use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::mem;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, major, minor};
use rustix::io::Errno;
use zeroize::Zeroizing;

use crate::clock::{Clock, later};
use crate::error::Error;
use crate::object::wipe;
use crate::wire::Buffer;
use crate::worker::Worker;

/// The space for one read: at first, and at most.
const READ_BYTES_MIN: usize = 8 * 1024;
const READ_BYTES_MAX: usize = 64 * 1024;

/// How long a file that is not plain may take, if the caller accepts such a file.
const PIPE_WAIT: Duration = Duration::from_secs(10);

/// Reads a plain file of text, of at most `bytes_max` bytes. Waits for no pipe.
///
/// Blocks on the disk. A file system that hangs blocks it without end.
///
/// # Errors
///
/// `Config` names the file and the reason: it cannot be read, it is a directory, a pipe or a
/// device, it is larger, or it is not text.
pub fn read_text(path: &Path, bytes_max: u64) -> Result<String, Error> {
    let text = read_secret_text(path, bytes_max);
    let text = text.map(|mut text| mem::take(&mut *text));
    text.map_err(|why| Error::config(format!("{}: {why}", path.display())))
}

/// As [`read_text`], on a detached thread, so that a file system that hangs blocks no caller.
/// Returns at once.
pub fn read_text_detached(path: PathBuf, bytes_max: u64) -> Receiver<Result<String, Error>> {
    let (send, read) = bounded(1);
    let failed = send.clone();
    let reader = Worker::spawn("local-file", move |_stop| {
        drop(send.send(read_text(&path, bytes_max)));
    });
    match reader {
        Ok(reader) => reader.abandon(),
        Err(error) => drop(failed.try_send(Err(Error::no_thread("a local file")(error)))),
    }
    read
}

/// The directory that contains the last name of a path.
pub(crate) fn directory_of(path: &Path) -> &Path {
    let parent = path.parent();
    let parent = parent.filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// Explains why a file cannot be read, in plain words for the usual reasons.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the system's own words serve for other reasons"
)]
pub(crate) fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file".to_owned(),
        io::ErrorKind::IsADirectory => "it is a directory".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}

/// Opens a plain file for reading, or `/dev/null`, which stands for an empty one. The error has the
/// reason, without the path.
pub(crate) fn open(path: &Path) -> Result<File, String> {
    let (file, about) = open_any(path)?;
    let (kind, device) = (about.file_type(), about.rdev());
    let is_null = kind.is_char_device() && (major(device), minor(device)) == (1, 3);
    if kind.is_file() || is_null {
        return Ok(file);
    }
    let what = if kind.is_fifo() { "a pipe" } else { "a device" };
    Err(format!("it is {what}; give a plain file"))
}

/// Opens any file but a directory, without waiting.
fn open_any(path: &Path) -> Result<(File, Metadata), String> {
    // A terminal must not become this process's controlling terminal.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::open(path, flags, Mode::empty());
    let file = File::from(file.map_err(|error| describe(&error.into()))?);
    let about = file.metadata().map_err(|error| describe(&error))?;
    if about.is_dir() {
        return Err("it is a directory".to_owned());
    }
    Ok((file, about))
}

/// Reads a plain file of at most `bytes_max`. The error has the reason, without the path.
pub(crate) fn read_bounded(path: &Path, bytes_max: u64) -> Result<Zeroizing<Vec<u8>>, String> {
    read(open(path)?, bytes_max, None)
}

/// Reads a plain file or a pipe, for at most ten seconds. A user may name a pipe on purpose, such
/// as the output of a program.
pub(crate) fn read_given(path: &Path, bytes_max: u64) -> Result<Zeroizing<Vec<u8>>, String> {
    let (file, about) = open_any(path)?;
    let until = (!about.is_file()).then(|| later(Clock::system().now(), PIPE_WAIT));
    read(file, bytes_max, until)
}

/// Reads a file of text as [`read_bounded`] does.
pub(crate) fn read_secret_text(path: &Path, bytes_max: u64) -> Result<Zeroizing<String>, String> {
    let text = wipe::text(read_bounded(path, bytes_max)?);
    Ok(Zeroizing::new(text.ok_or("holds bytes that are not text")?))
}

fn read(file: File, bytes_max: u64, until: Option<Instant>) -> Result<Zeroizing<Vec<u8>>, String> {
    // One byte more than allowed distinguishes a full file from a larger one.
    let mut file = file.take(bytes_max.saturating_add(1));
    // A pipe has no known size, and a file may grow; this buffer overwrites old memory when it
    // grows.
    let mut buffer = Buffer::new(READ_BYTES_MIN, READ_BYTES_MAX);
    loop {
        if let Some(until) = until {
            wait_for_bytes(file.get_ref(), until)?;
        }
        match file.read(buffer.space()) {
            Ok(0) => break,
            Ok(count) => buffer.filled(count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(describe(&error)),
        }
    }
    if u64::try_from(buffer.pending().len()).unwrap_or(u64::MAX) > bytes_max {
        return Err(format!("larger than {bytes_max} bytes"));
    }
    Ok(Zeroizing::new(buffer.pending().to_vec()))
}

/// Waits until a pipe has bytes or has been closed by its writers.
fn wait_for_bytes(file: &File, until: Instant) -> Result<(), String> {
    loop {
        let left = until.saturating_duration_since(Clock::system().now());
        let left = Timespec::try_from(left).unwrap_or_default();
        match poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Err(format!("its end did not come within {PIPE_WAIT:?}")),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;

    use super::*;
    use crate::tests::temp_directory::TempDirectory;

    /// Seen: each of these blocked its reader without end, or was read up to the limit.
    #[test]
    fn only_a_plain_file_is_read_and_nothing_is_waited_for() {
        let directory = TempDirectory::new("plain");
        let pipe = directory.join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        for (path, why) in [
            (&*pipe, "it is a pipe; give a plain file"),
            (Path::new("/dev/zero"), "it is a device; give a plain file"),
            (&*directory, "it is a directory"),
            (Path::new("/nowhere"), "no such file"),
        ] {
            assert_eq!(read_bounded(path, 64).unwrap_err(), why);
            let error = read_text(path, 64).unwrap_err().to_string();
            assert_eq!(error, format!("{}: {why}", path.display()));
            let detached = read_text_detached(path.to_owned(), 64).recv().unwrap();
            assert_eq!(detached.unwrap_err().to_string(), error);
        }
        assert!(read_bounded(Path::new("/dev/null"), 64).unwrap().is_empty());
        let file = directory.join("file");
        std::fs::write(&file, "x".repeat(65)).unwrap();
        assert_eq!(read_bounded(&file, 64).unwrap_err(), "larger than 64 bytes");
        assert_eq!(read_text(&file, 65).unwrap(), "x".repeat(65));
    }

    #[test]
    fn the_directory_of_a_single_name_is_the_present_one() {
        for (path, directory) in [("out", "."), ("a/out", "a"), ("/out", "/"), ("/", ".")] {
            assert_eq!(directory_of(Path::new(path)), Path::new(directory));
        }
    }

    /// The memory at address 0 can never be read, although its file is plain.
    #[test]
    fn a_file_whose_reads_fail_is_an_error_with_the_systems_words() {
        let why = read_bounded(Path::new("/proc/self/mem"), 100).unwrap_err();
        assert!(why.contains("os error"), "{why}");
    }

    /// A pipe has no known size, so the buffer grows during the read.
    #[test]
    fn a_pipe_that_is_given_is_read_to_its_end() {
        let text = "token ".repeat(30_000);
        let (from, mut to) = io::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", from.as_raw_fd());
        std::thread::scope(|scope| {
            scope.spawn(move || to.write_all(text.as_bytes()).unwrap());
            let read = read_given(Path::new(&path), 1 << 20).unwrap();
            assert_eq!(*read, "token ".repeat(30_000).as_bytes());
        });
        assert!(read_given(Path::new("/dev/null"), 64).unwrap().is_empty());
        let why = read_given(Path::new("/dev/zero"), 64).unwrap_err();
        assert_eq!(why, "larger than 64 bytes");
    }

    #[test]
    fn a_pipe_without_an_end_is_given_up() {
        let (from, mut to) = io::pipe().unwrap();
        to.write_all(b"half").unwrap();
        let until = Clock::system().now();
        let why = read(from_pipe(from), 64, Some(until)).unwrap_err();
        assert_eq!(why, "its end did not come within 10s");
        drop(to);
    }

    fn from_pipe(pipe: io::PipeReader) -> File {
        File::from(std::os::fd::OwnedFd::from(pipe))
    }
}
