//! Reads whole local files, no larger than allowed.

use std::fs::File;
use std::io::{self, Read as _};
use std::mem;
use std::path::Path;

use zeroize::Zeroizing;

use crate::wire::Buffer;

/// The room for one read: at first, and at most.
const READ_BYTES_MIN: usize = 8 * 1024;
const READ_BYTES_MAX: usize = 64 * 1024;

/// Says why a file cannot be read, in plain words for the usual reasons.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the system's own words serve for other reasons"
)]
pub(super) fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file".to_owned(),
        io::ErrorKind::IsADirectory => "it is a directory".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}

/// Reads a whole file of at most `bytes_max`. The error says why it fails, without the path.
pub(crate) fn read_bounded(path: &Path, bytes_max: u64) -> Result<Zeroizing<Vec<u8>>, String> {
    let file = File::open(path).map_err(|error| describe(&error))?;
    // One byte more than allowed distinguishes a full file from a larger one.
    let mut file = file.take(bytes_max.saturating_add(1));
    // A pipe tells no size, and a file may grow: this buffer overwrites what it leaves behind.
    let mut buffer = Buffer::new(READ_BYTES_MIN, READ_BYTES_MAX);
    loop {
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

/// Reads a file of text as [`read_bounded`] does.
pub(crate) fn read_text(path: &Path, bytes_max: u64) -> Result<Zeroizing<String>, String> {
    let mut bytes = read_bounded(path, bytes_max)?;
    let text = String::from_utf8(mem::take(&mut *bytes)).map_err(|error| {
        drop(Zeroizing::new(error.into_bytes()));
        "holds bytes that are not text"
    })?;
    Ok(Zeroizing::new(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_end_is_refused() {
        let why = read_bounded(Path::new("/dev/zero"), 64).unwrap_err();
        assert_eq!(why, "larger than 64 bytes");
    }

    /// A pipe tells no size, so that the buffer grows while it reads.
    #[test]
    fn a_pipe_is_read_to_its_end() {
        use std::io::Write as _;
        use std::os::fd::AsRawFd as _;

        let text = "token ".repeat(30_000);
        let (from, mut to) = io::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", from.as_raw_fd());
        std::thread::scope(|scope| {
            scope.spawn(move || to.write_all(text.as_bytes()).unwrap());
            let read = read_text(Path::new(&path), 1 << 20).unwrap();
            assert_eq!(*read, "token ".repeat(30_000));
        });
    }
}
