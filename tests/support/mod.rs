//! What several tests use: processes and directories of their own, and the examples' programs.

mod alone;
pub(crate) mod example;
#[cfg(any(feature = "ring", feature = "testing"))]
pub(crate) mod hung_mount;
pub(crate) mod small_disk;
#[path = "../../src/tests/temp_directory.rs"]
mod temp_directory;
#[path = "../../src/tests/until.rs"]
mod until;

#[cfg(feature = "ring")]
pub(crate) use alone::alone_with;
pub(crate) use alone::{alone, alone_traced};
pub(crate) use temp_directory::TempDirectory;
pub(crate) use until::{until, until_some};
