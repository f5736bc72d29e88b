//! The fate of an object while no process kept it.

use std::borrow::Cow;
use std::fmt;

use crate::object::ObjectKey;

/// An object that differs between the snapshot and the server's first answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SnapshotDifference {
    /// The server has another version of it, or another object of that name.
    ChangedWhileDown {
        /// Its kind, such as `Secret`.
        kind: Cow<'static, str>,
        /// Its namespace and name.
        key: ObjectKey,
    },
    /// The server has no such object.
    DeletedWhileDown {
        /// Its kind, such as `Secret`.
        kind: Cow<'static, str>,
        /// Its namespace and name.
        key: ObjectKey,
    },
}

impl fmt::Display for SnapshotDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, key, what) = match self {
            Self::ChangedWhileDown { kind, key } => (kind, key, "changed"),
            Self::DeletedWhileDown { kind, key } => (kind, key, "was deleted"),
        };
        write!(f, "{kind} {key} {what} while this process was down")
    }
}
