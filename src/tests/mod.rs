//! What the unit tests of several rooms use.

pub(crate) mod dice;
pub(crate) mod temp_directory;
