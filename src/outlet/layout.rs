//! The layout of an object's files by the program: their names, contents, mode and owner.

use std::collections::BTreeMap;
use std::fmt;

use rustix::fs::Mode;
use rustix::process::{getegid, geteuid};
use zeroize::Zeroizing;

use super::folder::{Access, FILE, OwnerIds, check_name};
use crate::error::{Error, debug_of};
use crate::object::ObjectKey;
use crate::setters::setters;
use crate::sync::Arc;

/// The state of an object whose files the program lays out.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Presence<'a> {
    /// The object exists: the bytes of each of its keys.
    There(&'a BTreeMap<&'a str, &'a [u8]>),
    /// The server no longer has it, but its files exist.
    Deleted,
    /// The server has no such object, and there are no files.
    Missing,
}

/// The program's decision about the files of an object.
#[derive(Debug)]
#[non_exhaustive]
pub enum Laid {
    /// The object has these files.
    Files(Layout),
    /// Its files stay as they are.
    Kept,
    /// Its files are removed.
    Removed,
}

/// The files of an object. Their contents are overwritten on drop.
///
/// # Examples
///
/// ```
/// use kubecache::outlet::Layout;
///
/// let layout = Layout::new().file("app.env", b"A=1\n".to_vec()).mode(0o640).group(1000);
/// assert_eq!(layout.names().collect::<Vec<_>>(), ["app.env"]);
/// ```
#[derive(Clone)]
#[must_use]
pub struct Layout {
    pub(super) files: BTreeMap<String, Zeroizing<Vec<u8>>>,
    mode: u32,
    user: Option<u32>,
    group: Option<u32>,
}

impl Default for Layout {
    fn default() -> Self {
        Self::new()
    }
}

impl Layout {
    /// Makes a layout without files. Files have mode 0600, and the owner of the outlet.
    pub fn new() -> Self {
        Self {
            files: BTreeMap::new(),
            mode: FILE.as_raw_mode(),
            user: None,
            group: None,
        }
    }

    /// Adds a file, or replaces the one of that name.
    pub fn file(mut self, name: impl Into<String>, contents: Vec<u8>) -> Self {
        self.files.insert(name.into(), Zeroizing::new(contents));
        self
    }

    /// Returns the names of the files, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// The rights to these files in an outlet with that owner.
    pub(super) fn access(&self, owner: OwnerIds) -> Access {
        let mut access = Access::of_owner(owner);
        if self.user.is_some() || self.group.is_some() {
            let (user, group) = owner.unwrap_or_else(|| (geteuid().as_raw(), getegid().as_raw()));
            access.of_files = Some((self.user.unwrap_or(user), self.group.unwrap_or(group)));
            access.shares = true;
        }
        access.shares |= self.mode & 0o077 != 0;
        access.file = Mode::from_raw_mode(self.mode);
        access
    }

    /// Refuses a layout that no outlet can write.
    pub(super) fn check(&self) -> Result<(), String> {
        for name in self.files.keys() {
            check_name(name).map_err(|why| format!("file {name:?} {why}"))?;
        }
        if self.mode & !0o777 != 0 || self.mode & 0o400 == 0 {
            return Err(format!(
                "mode {:04o} is none of a file that its owner can read: write one such as 0640",
                self.mode
            ));
        }
        if [self.user, self.group].contains(&Some(u32::MAX)) {
            return Err(format!("{} is no user or group", u32::MAX));
        }
        Ok(())
    }
}

setters! { [] Layout;
    /// Sets the mode of the files. Default: `0o600`.
    ///
    /// A mode with rights for the group or for others opens the object's folders to all users of
    /// the machine. They can then see the file names.
    mode(mode: u32);

    /// Sets the user who owns the files. The folders still belong to the outlet, and all users can
    /// see the file names. Default: the user of the outlet.
    user(user: u32) = Some(user);

    /// Sets the group of the files, with the effects of [`user`](Self::user). Default: the group of
    /// the outlet.
    group(group: u32) = Some(group);
}

debug_of!([] Layout, |it|
    files: it.files.keys(), mode: format_args!("{:04o}", it.mode), user: it.user, group: it.group);

/// A program's function that lays out the files of objects.
type LayOut = dyn Fn(&str, &ObjectKey, Presence<'_>) -> Result<Laid, Error> + Send + Sync;

/// The function of the options, if there is one.
#[derive(Clone, Default)]
pub(super) struct Layouts(pub(super) Option<Arc<LayOut>>);

impl fmt::Debug for Layouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_ref().map_or("one file per key", |_| "given"))
    }
}
