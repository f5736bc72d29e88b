//! For tests of this crate and of others: an API server in memory, recordings of real servers, the
//! server that replays them, and builders of objects. Feature `testing`.
//!
//! A test server misbehaves on command: [`FAULTS`] and [`SERVER_FAULTS`] are the tables of what it
//! can do, each with an example and with what a correct client does. A [`Fault`] says who meets it.

pub mod objects;

mod api;
#[cfg(test)]
pub(crate) mod bad;
mod control;
mod http;
mod json;
mod record;
mod recording;
mod server;
mod source;

pub use api::{AccessRule, ApiResource, ApiServer, ApiServerBuilder, DropParameter};
pub use control::ControlServer;
pub use http::{
    Act, Answered, CertificateFlaw, FAULTS, Fault, FaultDescription, FaultId, Part, Received,
    SERVER_FAULTS, TestAuthority, Unfinished,
};
pub use record::Recorder;
pub use recording::{Answer, Chunk, End, Exchange, Recording};
pub use server::{FixtureServer, FixtureServerBuilder, Speed, Step};
pub use source::{FakeSource, RequestKind, SeenRequest, SourceFault};

pub use crate::wire::{EventDecoder, ListDecoder};

/// Returns the names of the crate's locks that the calling thread holds, for tests of code that the
/// crate calls: it holds none there. Builds without debug assertions know none.
pub fn held_locks() -> Vec<&'static str> {
    crate::sync::held().collect()
}

#[cfg(test)]
mod tests;
