//! The options of an outlet.

use std::path::PathBuf;

use crate::clock::Clock;
use crate::setters::setters;

/// The user and group of files, by their numbers.
pub(super) type OwnerIds = Option<(u32, u32)>;

/// Options of an [`Outlet`](super::Outlet).
#[derive(Clone, Debug)]
#[must_use]
pub struct OutletOptions {
    pub(super) directory: PathBuf,
    pub(super) owner: OwnerIds,
    pub(super) name: String,
    pub(super) adopts: bool,
    pub(super) clock: Clock,
}

setters! { [] OutletOptions;
    /// Names the program that writes. It stands in the directory's marker, and an outlet of another
    /// name refuses the directory. At most 255 bytes, without control characters. Default:
    /// `kubecache`.
    name(name: impl Into<String>) = name.into();

    /// Takes a directory that is not the outlet's: one with other files, or with the marker of an
    /// outlet of another name. What no outlet made stays there. Default: `false`, which refuses it.
    adopt(adopts: bool) in adopts;

    /// Replaces the clock, for tests. Default: the system's.
    clock(clock: Clock);
}

impl OutletOptions {
    /// Options with that directory, and else the defaults.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            owner: None,
            name: "kubecache".to_owned(),
            adopts: false,
            clock: Clock::system(),
        }
    }

    /// Gives files and folders to a user and a group. Default: those of the process. The process
    /// needs the right to do so.
    pub fn owner(self, user: u32, group: u32) -> Self {
        Self {
            owner: Some((user, group)),
            ..self
        }
    }

    /// Refuses a number that, to the system, leaves the owner as it is, and a name that is no line.
    pub(super) fn check(&self) -> Result<(), String> {
        if let Some((user, group)) = self.owner
            && (user == u32::MAX || group == u32::MAX)
        {
            return Err(format!("{user}:{group} is no user and group"));
        }
        if self.name.len() > 255 || self.name.chars().any(char::is_control) {
            return Err(format!(
                "the name {:?} is longer than 255 bytes or no line",
                self.name
            ));
        }
        Ok(())
    }
}
