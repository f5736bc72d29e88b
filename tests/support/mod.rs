//! What several tests use: processes of their own, and the examples' programs.

mod alone;
pub(crate) mod example;

pub(crate) use alone::alone;
