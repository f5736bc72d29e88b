//! The file of a snapshot: read as a whole, and replaced in one step.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use zeroize::Zeroizing;

/// What is written stands under this end of name until it is whole.
const NEW: &str = ".new";
/// A file that could not be used is kept under this end of name.
const UNUSABLE: &str = ".unusable";

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// Reads the file; `None` if there is none. Follows no link.
pub(super) fn read(path: &Path, bytes_max: usize) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = match fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    let length = usize::try_from(about.len()).unwrap_or(usize::MAX);
    if length > bytes_max {
        return Err(io::Error::other(format!(
            "it has {length} bytes, and at most {bytes_max} are allowed"
        )));
    }
    let mut bytes = Zeroizing::new(vec![0; length]);
    (&file).read_exact(&mut bytes)?;
    Ok(Some(bytes))
}

/// Replaces the file by these pieces. A reader, and who comes after a power cut, finds the old file
/// or the new one, and both whole.
pub(super) fn replace(path: &Path, pieces: &[&[u8]], keep_old: bool) -> io::Result<()> {
    let new = beside(path, NEW);
    match fs::unlink(&new) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = fs::open(&new, flags, Mode::RUSR | Mode::WUSR)?;
    let mut file = File::from(file);
    for piece in pieces {
        file.write_all(piece)?;
    }
    file.sync_all()?;
    if keep_old {
        match fs::rename(path, beside(path, UNUSABLE)) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    fs::rename(&new, path)?;
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}
