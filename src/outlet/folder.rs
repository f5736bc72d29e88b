//! An open folder, and operations in it by name. They follow no link, so that a user who can write
//! elsewhere cannot lead the outlet there.

use std::fs::File;
use std::hash::{Hash as _, Hasher};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{self, AtFlags, Dir, FileType, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use crate::local_file::directory_of;
use crate::unique_name::unique_name;

/// The user and group of files, by their numbers.
pub(super) type OwnerIds = Option<(u32, u32)>;

/// For the owner alone.
const FOLDER: Mode = Mode::RWXU;
pub(super) const FILE: Mode = Mode::RUSR.union(Mode::WUSR);

/// The mode for users on their way to a file whose name they know.
const PASSAGE: Mode = FOLDER.union(Mode::XGRP).union(Mode::XOTH);
/// The mode for users who may see the names of files.
const SHARED: Mode = PASSAGE.union(Mode::RGRP).union(Mode::ROTH);

#[derive(Debug)]
pub(super) struct Folder(OwnedFd);

/// The rights to an object's files, and to the folders that lead to them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    /// The owner of the folders.
    pub(super) owner: OwnerIds,
    pub(super) of_files: OwnerIds,
    pub(super) file: Mode,
    /// Whether users other than the owner of the folders use the files.
    pub(super) shares: bool,
}

impl Access {
    /// For the owner alone.
    pub(super) fn of_owner(owner: OwnerIds) -> Self {
        Self {
            owner,
            of_files: owner,
            file: FILE,
            shares: false,
        }
    }

    /// The mode of the folders that hold files.
    pub(super) fn folder(self) -> Mode {
        if self.shares { SHARED } else { FOLDER }
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Folder {
    /// Opens a directory by its path, whose links are the administrator's, and makes it if need be.
    /// `passes` lets other users pass through a directory that it makes.
    pub(super) fn root(path: &Path, owner: OwnerIds, passes: bool) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        if let Ok(root) = fs::open(path, flags, Mode::empty()) {
            return Ok(Self(root));
        }
        match fs::mkdir(path, FOLDER) {
            // The mask of the process may have taken bits away.
            Ok(()) => fs::chmod(path, if passes { PASSAGE } else { FOLDER })?,
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let root = fs::open(path, flags, Mode::empty())?;
        own(&root, owner)?;
        Ok(Self(root))
    }

    /// Whether the path still leads to this folder.
    ///
    /// # Errors
    ///
    /// The path leads to another disk now, or the directory would be created on one.
    pub(super) fn is_at(&self, path: &Path) -> io::Result<bool> {
        let held = fs::fstat(&self.0)?;
        let there = match fs::stat(path) {
            Ok(there) => there,
            Err(Errno::NOENT) => fs::stat(directory_of(path))?,
            Err(error) => return Err(error.into()),
        };
        if held.st_dev != there.st_dev {
            let why = "another disk is there now; open another outlet for it";
            return Err(io::Error::other(why));
        }
        Ok(held.st_ino == there.st_ino)
    }

    /// Fails if users other than the outlet's owner and root can write in it.
    pub(super) fn check_private(&self, owner: OwnerIds) -> io::Result<()> {
        let facts = fs::fstat(&self.0)?;
        let (user, mode, owner) = (facts.st_uid, facts.st_mode & 0o7777, user_of(owner));
        let why = if Mode::from_raw_mode(mode).intersects(Mode::WGRP | Mode::WOTH) {
            format!("has the mode {mode:04o}; take the right to write away with chmod go-w")
        } else if user != 0 && user != owner {
            format!("belongs to the user {user}; give it to {owner} with chown")
        } else {
            return Ok(());
        };
        Err(io::Error::other(format!(
            "others can write in a folder of this path, so that no file in it is safe: it {why}"
        )))
    }

    /// Whether it belongs to the owner, and has the mode of a folder of files.
    pub(super) fn is_as_made(&self, access: Access) -> io::Result<bool> {
        is_as_made(&self.0, access.folder(), access.owner)
    }

    /// Fails if users of files in it cannot pass through it.
    pub(super) fn check_passage(&self, access: Access) -> io::Result<()> {
        let is_owners = fs::fstat(&self.0)?.st_uid == user_of(access.owner);
        if (access.shares || !is_owners) && !self.mode()?.intersects(Mode::XGRP | Mode::XOTH) {
            let why = "those who shall use the files cannot enter the directory: chmod 711 it";
            return Err(io::Error::other(why));
        }
        Ok(())
    }

    /// Hashes the system's facts about the file of that name, except its content: identity, owner
    /// and time of change.
    pub(super) fn add_facts(&self, name: &str, to: &mut impl Hasher) -> io::Result<()> {
        let facts = fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?;
        add_identity(&facts, to);
        let modified = (facts.st_mtime, facts.st_mtime_nsec);
        let changed = (facts.st_ctime, facts.st_ctime_nsec);
        (name, facts.st_size, modified, changed).hash(to);
        Ok(())
    }

    /// Hashes the folder's identity and owner.
    pub(super) fn add_own_facts(&self, to: &mut impl Hasher) -> io::Result<()> {
        add_identity(&fs::fstat(&self.0)?, to);
        Ok(())
    }

    /// As [`child`](Self::child), for the outlet's own folder, whose owner may have lost the right
    /// to open it.
    pub(super) fn own_child(&self, name: &str) -> io::Result<Option<Self>> {
        match self.child(name) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                fs::chmodat(&self.0, name, FOLDER, AtFlags::empty())?;
                self.child(name)
            }
            other => other,
        }
    }

    /// Opens the folder of that name; `None` if there is none.
    pub(super) fn child(&self, name: &str) -> io::Result<Option<Self>> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let child = fs::openat(&self.0, name, flags, Mode::empty());
        Ok(found(child, &[Errno::NOENT, Errno::NOTDIR, Errno::LOOP])?.map(Self))
    }

    /// Opens the folder of that name on the way to files, and makes it for its owner if need be.
    /// Refuses a folder that other users can write. One that is not the outlet's keeps its owner
    /// and its mode.
    pub(super) fn make(
        &self,
        name: &str,
        access: Access,
        is_of_outlet: impl Fn(&Self) -> io::Result<bool>,
    ) -> io::Result<Self> {
        let owner = access.owner;
        let Some(child) = self.child(name)? else {
            let child = self.make_new(name, owner, FOLDER)?;
            child.let_pass(access)?;
            return Ok(child);
        };
        // A killed process may have left it so.
        let is_new = |it: &Self| -> io::Result<bool> {
            Ok(is_owned(&fs::fstat(&it.0)?, None) && it.names()?.is_empty())
        };
        let may_change = || Ok::<_, io::Error>(is_of_outlet(&child)? || is_new(&child)?);
        if !is_owned(&fs::fstat(&child.0)?, owner) && may_change()? {
            own(&child.0, owner)?;
        }
        child.check_private(owner)?;
        if access.shares && !child.mode()?.contains(PASSAGE) {
            if may_change()? {
                child.let_pass(access)?;
            } else {
                child.check_passage(access)?;
            }
        }
        Ok(child)
    }

    /// Lets users of shared files pass through it.
    fn let_pass(&self, access: Access) -> io::Result<()> {
        if access.shares {
            fs::fchmod(&self.0, self.mode()? | PASSAGE)?;
        }
        Ok(())
    }

    fn mode(&self) -> io::Result<Mode> {
        Ok(Mode::from_raw_mode(fs::fstat(&self.0)?.st_mode))
    }

    /// Sets the mode of a folder of files.
    pub(super) fn set_access(&self, access: Access) -> io::Result<()> {
        Ok(fs::fchmod(&self.0, access.folder())?)
    }

    /// Makes a new folder.
    pub(super) fn make_new(&self, name: &str, owner: OwnerIds, mode: Mode) -> io::Result<Self> {
        fs::mkdirat(&self.0, name, FOLDER)?;
        let child = self.own_child(name)?.ok_or(io::ErrorKind::NotFound)?;
        // The mask of the process may have taken bits away. By its name it may be another's link.
        fs::fchmod(&child.0, mode)?;
        own(&child.0, owner)?;
        Ok(child)
    }

    /// Opens a plain file for reading; `None` unless it is as this outlet makes them.
    pub(super) fn file_as_made(&self, name: &str, access: Access) -> io::Result<Option<File>> {
        match self.file(name) {
            Ok(Some(file)) if is_as_made(&file, access.file, access.of_files)? => Ok(Some(file)),
            // Its owner has lost the right to read it.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let facts = fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?;
                if is_owned(&facts, None) {
                    return Ok(None);
                }
                let user = facts.st_uid;
                let why = format!("this process cannot read what it gave to the user {user}");
                let needs = "it needs the capability CAP_DAC_READ_SEARCH";
                Err(io::Error::other(format!("{why}: {needs}")))
            }
            other => other.map(|_| None),
        }
    }

    /// Whether the name is of a file of this type. Opens nothing.
    pub(super) fn is(&self, name: &str, file_type: FileType) -> io::Result<bool> {
        let facts = fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW);
        let facts = found(facts, &[Errno::NOENT])?;
        Ok(facts.is_some_and(|facts| FileType::from_raw_mode(facts.st_mode) == file_type))
    }

    /// Opens a plain file for reading; `None` if there is none. Never waits for another process.
    pub(super) fn file(&self, name: &str) -> io::Result<Option<File>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = fs::openat(&self.0, name, flags, Mode::empty());
        let file = found(file, &[Errno::NOENT, Errno::LOOP, Errno::NXIO])?;
        let Some(file) = file.map(File::from) else {
            return Ok(None);
        };
        Ok(file.metadata()?.is_file().then_some(file))
    }

    /// Makes a new file. Sets its owner first, because the mode applies to the owner's group.
    pub(super) fn new_file(&self, name: &str, access: Access) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = fs::openat(&self.0, name, flags, FILE)?;
        own(&file, access.of_files)?;
        fs::fchmod(&file, access.file)?;
        Ok(File::from(file))
    }

    /// Reads the target of the link of that name; `None` if it is not a link.
    pub(super) fn link(&self, name: &str) -> io::Result<Option<String>> {
        let target = fs::readlinkat(&self.0, name, Vec::new());
        let target = found(target, &[Errno::NOENT, Errno::INVAL])?;
        Ok(target.and_then(|target| target.into_string().ok()))
    }

    /// Points the link of that name at `target`. Makes it under a name that begins with `new`, then
    /// replaces any file or link of the final name in one step.
    pub(super) fn set_link(&self, name: &str, target: &str, new: &str) -> io::Result<()> {
        let new = unique_name(new);
        fs::symlinkat(target, &self.0, &new)?;
        self.rename(&new, name)
    }

    /// Renames a file in one step.
    pub(super) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let renamed = fs::renameat(&self.0, from, &self.0, to);
        if renamed.is_err() {
            // The error of the rename matters more than this one.
            drop(self.remove(from));
        }
        Ok(renamed?)
    }

    /// Removes a file, a link, or an empty folder.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        if self.child(name)?.is_some() {
            return self.remove_if_empty(name);
        }
        let removed = fs::unlinkat(&self.0, name, AtFlags::empty());
        found(removed, &[Errno::NOENT]).map(drop)
    }

    /// Removes an empty folder, and nothing else.
    pub(super) fn remove_if_empty(&self, name: &str) -> io::Result<()> {
        match fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => Ok(()),
            removed => Ok(removed?),
        }
    }

    /// The names in the folder. A name that is not text is changed, so that it matches no file.
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

/// The result of a call of the system; `None` if it failed with one of the errors in `absent`.
fn found<T>(result: Result<T, Errno>, absent: &[Errno]) -> io::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if absent.contains(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Refuses a name that leads out of a folder, or looks like one of the outlet's own files.
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

/// The user who owns the files: from the options, otherwise the user of the process.
fn user_of(owner: OwnerIds) -> u32 {
    owner.map_or_else(|| rustix::process::geteuid().as_raw(), |(user, _)| user)
}

/// Whether the file belongs to the owner. Without an owner in the options, any group of the process
/// will do.
fn is_owned(facts: &fs::Stat, owner: OwnerIds) -> bool {
    facts.st_uid == user_of(owner) && owner.is_none_or(|(_, group)| facts.st_gid == group)
}

/// Gives the file to the owner, unless it belongs to the owner already.
fn own(fd: impl AsFd, owner: OwnerIds) -> io::Result<()> {
    if !is_owned(&fs::fstat(&fd)?, owner) {
        let group = owner.map(|(_, group)| Gid::from_raw(group));
        fs::fchown(&fd, Some(Uid::from_raw(user_of(owner))), group)?;
    }
    Ok(())
}

/// Whether the file has this mode and belongs to the owner.
fn is_as_made(fd: impl AsFd, mode: Mode, owner: OwnerIds) -> io::Result<bool> {
    let facts = fs::fstat(fd)?;
    Ok(is_owned(&facts, owner) && facts.st_mode & 0o7777 == mode.as_raw_mode())
}

fn add_identity(facts: &fs::Stat, to: &mut impl Hasher) {
    (facts.st_ino, facts.st_mode, facts.st_uid, facts.st_gid).hash(to);
}
