//! A folder that is open, and what is done in it by name. No link is followed on the way, so that
//! nobody who can write elsewhere leads the outlet there.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{self, AtFlags, Dir, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use super::options::OwnerIds;

/// For the owner alone.
const FOLDER: Mode = Mode::RWXU;
const FILE: Mode = Mode::RUSR.union(Mode::WUSR);

#[derive(Debug)]
pub(super) struct Folder(OwnedFd);

impl Folder {
    /// Opens a directory by its path, whose links are the administrator's, and makes it if need be.
    pub(super) fn root(path: &Path, owner: OwnerIds) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        if let Ok(root) = fs::open(path, flags, Mode::empty()) {
            return Ok(Self(root));
        }
        match fs::mkdir(path, FOLDER) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let root = fs::open(path, flags, Mode::empty())?;
        own(&root, owner)?;
        Ok(Self(root))
    }

    /// Fails unless it is still what that path leads to.
    pub(super) fn check_is_at(&self, path: &Path) -> io::Result<()> {
        let (held, there) = (fs::fstat(&self.0)?, fs::stat(path)?);
        if (held.st_dev, held.st_ino) == (there.st_dev, there.st_ino) {
            return Ok(());
        }
        let why = "another directory is there now, or another disk; open another outlet for it";
        Err(io::Error::other(why))
    }

    /// The folder of that name, `None` if there is none.
    pub(super) fn child(&self, name: &str) -> io::Result<Option<Self>> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match fs::openat(&self.0, name, flags, Mode::empty()) {
            Ok(child) => Ok(Some(Self(child))),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The folder of that name, made if need be.
    pub(super) fn make(&self, name: &str, owner: OwnerIds) -> io::Result<Self> {
        if let Some(child) = self.child(name)? {
            return Ok(child);
        }
        self.make_new(name, owner)
    }

    /// Makes a folder that was not there.
    pub(super) fn make_new(&self, name: &str, owner: OwnerIds) -> io::Result<Self> {
        fs::mkdirat(&self.0, name, FOLDER)?;
        let child = self.child(name)?.ok_or(io::ErrorKind::NotFound)?;
        own(&child.0, owner)?;
        Ok(child)
    }

    /// Opens a file for reading, `None` if there is none.
    pub(super) fn file(&self, name: &str) -> io::Result<Option<File>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        match fs::openat(&self.0, name, flags, Mode::empty()) {
            Ok(file) => Ok(Some(File::from(file))),
            Err(Errno::NOENT | Errno::LOOP) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a file that was not there.
    pub(super) fn new_file(&self, name: &str, owner: OwnerIds) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = fs::openat(&self.0, name, flags, FILE)?;
        own(&file, owner)?;
        Ok(File::from(file))
    }

    /// Where the link of that name leads, `None` if it is no link.
    pub(super) fn link(&self, name: &str) -> io::Result<Option<String>> {
        match fs::readlinkat(&self.0, name, Vec::new()) {
            Ok(target) => Ok(target.into_string().ok()),
            Err(Errno::NOENT | Errno::INVAL) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Lets the link of that name lead to `target`. Whatever had the name before is replaced in one
    /// step.
    pub(super) fn set_link(&self, name: &str, target: &str) -> io::Result<()> {
        const NEW: &str = "..link_new";
        self.remove(NEW)?;
        fs::symlinkat(target, &self.0, NEW)?;
        Ok(fs::renameat(&self.0, NEW, &self.0, name)?)
    }

    /// Removes what has that name, with all that is in it.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        match fs::unlinkat(&self.0, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::ISDIR | Errno::PERM) => {
                if let Some(child) = self.child(name)? {
                    for inner in child.names()? {
                        child.remove(&inner)?;
                    }
                }
                Ok(fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR)?)
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn remove_if_empty(&self, name: &str) -> io::Result<()> {
        match fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The names of what is in it. Names that are not text belong to nobody here.
    pub(super) fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            let entry = entry?;
            let name: &CStr = entry.file_name();
            match name.to_str() {
                Ok("." | "..") | Err(_) => {}
                Ok(name) => names.push(name.to_owned()),
            }
        }
        Ok(names)
    }
}

fn own(fd: &OwnedFd, owner: OwnerIds) -> io::Result<()> {
    if let Some((user, group)) = owner {
        let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
        fs::fchown(fd.as_fd(), Some(user), Some(group))?;
    }
    Ok(())
}
