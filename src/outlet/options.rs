//! The options of an outlet.

use std::io;
use std::path::PathBuf;

use super::folder::{Folder, OwnerIds};
use super::layout::{Laid, Layouts, Presence};
use crate::clock::Clock;
use crate::error::Error;
use crate::object::ObjectKey;
use crate::setters::setters;
use crate::sync::Arc;

/// Options of an [`Outlet`](super::Outlet).
#[derive(Clone, Debug)]
#[must_use]
pub struct OutletOptions {
    pub(super) directory: PathBuf,
    pub(super) owner: OwnerIds,
    pub(super) name: String,
    pub(super) adopts: bool,
    pub(super) clock: Clock,
    pub(super) layouts: Layouts,
}

setters! { [] OutletOptions;
    /// Sets the name of the program that writes. The directory's marker contains it, and an outlet
    /// with another name refuses the directory. At most 255 bytes, without control characters.
    /// Default: `kubecache`.
    name(name: impl Into<String>) = name.into();

    /// Sets whether the outlet takes a directory with other files, or with another outlet's marker.
    /// It leaves strays alone. Default: `false`, which refuses such a directory.
    adopt(adopts: bool) in adopts;

    /// Sets the clock, for tests. Default: the system's.
    clock(clock: Clock);
}

impl OutletOptions {
    /// Makes options with that directory, and otherwise the defaults.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            owner: None,
            name: "kubecache".to_owned(),
            adopts: false,
            clock: Clock::system(),
            layouts: Layouts::default(),
        }
    }

    /// Sets the user and group that own files and folders. Default: those of the process. The
    /// process needs the right to give files away.
    pub fn owner(mut self, user: u32, group: u32) -> Self {
        self.owner = Some((user, group));
        self
    }

    /// Sets a function that lays out the files of each object. It receives the kind, the object's
    /// key, and its state. Default: a file per key, which stays when the server deletes the object.
    ///
    /// The writing thread calls it before each write, without a lock. If the server has no such
    /// object, a [`Publisher`](super::Publisher) calls it in each round. An error or a panic
    /// becomes the object's failure, and leaves the files as they are.
    ///
    /// # Examples
    ///
    /// ```
    /// use kubecache::outlet::{Laid, Layout, OutletOptions, Presence};
    ///
    /// let options = OutletOptions::new("/run/shop").layout(|_kind, _key, presence| {
    ///     let Presence::There(data) = presence else {
    ///         return Ok(Laid::Removed);
    ///     };
    ///     // The keys of a certificate as one file.
    ///     let part = |key| data.get(key).copied().unwrap_or_default();
    ///     let bundle = [part("tls.crt"), part("tls.key")].concat();
    ///     Ok(Laid::Files(Layout::new().file("bundle.pem", bundle)))
    /// });
    /// # drop(options);
    /// ```
    pub fn layout<F>(mut self, lay_out: F) -> Self
    where
        F: Fn(&str, &ObjectKey, Presence<'_>) -> Result<Laid, Error> + Send + Sync + 'static,
    {
        self.layouts = Layouts(Some(Arc::new(lay_out)));
        self
    }

    /// Opens the directory, and makes it if need be.
    pub(super) fn root(&self) -> io::Result<Folder> {
        Folder::root(&self.directory, self.owner, self.layouts.0.is_some())
    }

    /// Refuses an owner number that means "unchanged" to the system, and a name that is not one
    /// line.
    pub(super) fn check(&self) -> Result<(), String> {
        if let Some((user, group)) = self.owner
            && (user == u32::MAX || group == u32::MAX)
        {
            return Err(format!("{user}:{group} is no user and group"));
        }
        let name = &self.name;
        if name.len() > 255 || name.chars().any(char::is_control) {
            let why = format!("the name {name:?} is longer than 255 bytes or no line");
            return Err(why);
        }
        Ok(())
    }
}
