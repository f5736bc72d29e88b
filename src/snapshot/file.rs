//! The file of a snapshot: read as a whole, and replaced in one step.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{self, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use zeroize::Zeroizing;

use crate::local_file::directory_of;
use crate::unique_name::{is_unique_name, unique_name};
use crate::writer_lock::{WriterLock, this_process};

/// The suffix of an unfinished file's name, followed by a number.
const NEW: &str = ".new";
/// The suffix of the lock file, whose lock admits one writing process.
const LOCK: &str = ".lock";
/// The maximum size of the lock file's text, which names a process.
const LOCK_BYTES_MAX: u64 = 1024;
/// The suffix under which an unusable file is kept, followed by a number if another file has that
/// name.
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
        return Err(io::Error::other("it is no plain file"));
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

/// Reserves the file for writes by this process, until the lock is dropped. `WouldBlock` names the
/// process that holds it.
///
/// The lock is on a file beside it, because each write replaces the file itself.
pub(super) fn lock(path: &Path) -> io::Result<WriterLock> {
    let beside = beside(path, LOCK);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = fs::open(&beside, flags | OFlags::NONBLOCK, Mode::RUSR | Mode::WUSR);
    let named = |error: io::Error| {
        let text = format!("its lock {}: {error}", beside.display());
        io::Error::new(error.kind(), text)
    };
    let file = File::from(file.map_err(|error| named(error.into()))?);
    if !file.metadata()?.is_file() {
        return Err(named(io::Error::other("it is no plain file")));
    }
    let lock = WriterLock::of(&file).map_err(named)?;
    let mut holder = Vec::new();
    (&file).take(LOCK_BYTES_MAX).read_to_end(&mut holder)?;
    let holder = String::from_utf8_lossy(&holder);
    let Some(lock) = lock else {
        let text = format!("another process writes it: {}", holder.trim());
        return Err(io::Error::new(io::ErrorKind::WouldBlock, text));
    };
    let number = holder.split_whitespace().next().unwrap_or_default();
    if !holder.is_empty() && number.parse::<u32>().is_err() {
        let why = "it is no lock of a snapshot; move it elsewhere";
        return Err(named(io::Error::other(why)));
    }
    let holder = format!("{}\n", this_process());
    file.set_len(0)
        .and_then(|()| file.write_all_at(holder.as_bytes(), 0))
        .map_err(named)?;
    remove_leftovers(path)?;
    Ok(lock)
}

/// Removes the unfinished files of killed processes.
fn remove_leftovers(path: &Path) -> io::Result<()> {
    let new = beside(path, NEW);
    let Some(begin) = new.file_name() else {
        return Ok(());
    };
    for entry in std::fs::read_dir(directory_of(path))? {
        let entry = entry?;
        let is_one = is_unique_name(entry.file_name().as_bytes(), begin.as_bytes());
        if is_one && entry.file_type()?.is_file() {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Replaces the file by these pieces. A reader finds the whole old file or the whole new one, even
/// after a power cut. A folder, a pipe or a link at the path is somebody's, and stays.
///
/// [`sync_directory`] follows: until then a power cut may bring the old file back.
pub(super) fn replace(path: &Path, pieces: &[&[u8]], keep_old: bool) -> io::Result<()> {
    if std::fs::symlink_metadata(path).is_ok_and(|about| !about.is_file()) {
        return Err(io::Error::other("it is no plain file; move it elsewhere"));
    }
    let new = beside(path, &unique_name(NEW));
    let written = write(&new, pieces).and_then(|()| {
        if keep_old {
            keep(path)?;
        }
        Ok(fs::rename(&new, path)?)
    });
    if written.is_err() {
        // The error of the write matters more than this one.
        drop(std::fs::remove_file(&new));
    }
    written
}

/// Makes a replaced file outlast a power cut.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = directory_of(path);
    let synced = File::open(directory).and_then(|opened| opened.sync_all());
    synced.map_err(|error| {
        let directory = directory.display();
        let text = format!("it is written, but its directory {directory} is not synced: {error}");
        io::Error::new(error.kind(), text)
    })
}

/// Renames the file, if there is one, to a name that no file has.
fn keep(path: &Path) -> io::Result<()> {
    let usual = beside(path, UNUSABLE);
    match fs::renameat_with(CWD, path, CWD, &usual, RenameFlags::NOREPLACE) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        // Some file systems do not support this.
        Err(_) => {}
    }
    let other = beside(path, &unique_name(UNUSABLE));
    let failed = |error: Errno| {
        let text = format!("it cannot be kept as {}: {error}", other.display());
        io::Error::new(io::Error::from(error).kind(), text)
    };
    fs::rename(path, &other).map_err(failed)?;
    log::warn!("{} is kept as {}", path.display(), other.display());
    Ok(())
}

fn write(path: &Path, pieces: &[&[u8]]) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut file = File::from(fs::open(path, flags, Mode::RUSR | Mode::WUSR)?);
    for piece in pieces {
        file.write_all(piece)?;
    }
    file.sync_all()
}
