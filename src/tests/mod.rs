//! What the unit tests of several rooms use.

pub(crate) mod dice;
mod exact_waits;
pub(crate) mod temp_directory;
pub(crate) mod until;
