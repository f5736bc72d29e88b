//! A folder that is open, and what is done in it by name. No link is followed on the way, so that
//! nobody who can write elsewhere leads the outlet there.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{self, AtFlags, Dir, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use super::options::OwnerIds;
use crate::unique_name::unique_name;

/// For the owner alone.
const FOLDER: Mode = Mode::RWXU;
const FILE: Mode = Mode::RUSR.union(Mode::WUSR);

#[derive(Debug)]
pub(super) struct Folder(OwnedFd);

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

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

    /// Opens a plain file for reading, `None` if there is none. Waits for nobody.
    pub(super) fn file(&self, name: &str) -> io::Result<Option<File>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        match fs::openat(&self.0, name, flags, Mode::empty()) {
            Ok(file) => {
                let file = File::from(file);
                Ok(file.metadata()?.is_file().then_some(file))
            }
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => Ok(None),
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

    /// Lets the link of that name lead to `target`. It has a name that begins with `new` before.
    /// Whatever file or link had the name is replaced in one step.
    pub(super) fn set_link(&self, name: &str, target: &str, new: &str) -> io::Result<()> {
        let new = unique_name(new);
        fs::symlinkat(target, &self.0, &new)?;
        self.rename(&new, name)
    }

    /// Gives what has the one name the other, in one step.
    pub(super) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let renamed = fs::renameat(&self.0, from, &self.0, to);
        if renamed.is_err() {
            // The error of the rename is the one to tell.
            drop(self.remove(from));
        }
        Ok(renamed?)
    }

    /// Removes a file, a link, or a folder in which nothing is.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        if self.child(name)?.is_some() {
            return self.remove_if_empty(name);
        }
        match fs::unlinkat(&self.0, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes a folder, unless something is in it or it is none.
    pub(super) fn remove_if_empty(&self, name: &str) -> io::Result<()> {
        match fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => Ok(()),
            removed => Ok(removed?),
        }
    }

    /// The names of what is in it. One that is not text is changed, so that nothing is found by it.
    pub(super) fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        Ok(names)
    }
}

/// Refuses what leads out of a folder, or looks like a file of the outlet's own.
pub(super) fn check_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() {
        Err("is empty")
    } else if name.starts_with("..") || name == "." {
        Err("is a folder's own name, or begins with \"..\"")
    } else if name.contains(['/', '\0']) {
        Err("would lead into another folder")
    } else if name.len() > 255 {
        Err("is longer than the name of a file can be")
    } else {
        Ok(())
    }
}

fn own(fd: &OwnedFd, owner: OwnerIds) -> io::Result<()> {
    if let Some((user, group)) = owner {
        let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
        fs::fchown(fd.as_fd(), Some(user), Some(group))?;
    }
    Ok(())
}
