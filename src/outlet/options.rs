//! The options of an outlet.

use std::path::PathBuf;

/// The user and group of files, by their numbers.
pub(super) type OwnerIds = Option<(u32, u32)>;

/// Options of an [`Outlet`](super::Outlet).
#[derive(Clone, Debug)]
#[must_use]
pub struct OutletOptions {
    pub(super) directory: PathBuf,
    pub(super) owner: OwnerIds,
}

impl OutletOptions {
    /// Options with that directory, and else the defaults.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            owner: None,
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
}
