//! For tests of this crate and of others: an [API server][kubernetes] in memory, recordings of real
//! servers, the server that replays them, and builders of [objects]. Feature `testing`.
//!
//! ```
//! # #[cfg(feature = "testing")] {
//! use k8s_openapi::api::core::v1::Secret;
//! use kubecache::http::{Client, ClientOptions, Config};
//! use kubecache::object::ObjectKey;
//! use kubecache::testing::{Act, ApiServer, Fault, objects};
//!
//! let server = ApiServer::new()?; // on a port of this machine, for any client
//! server.apply(&objects::secret("shop", "db", "", &[("password", "made-up")]))?;
//! server.add_fault(Fault::new(Act::CutAfter(100)).times(1)); // cuts one answer
//!
//! let client = Client::new(&Config::for_server(&server.url())?, ClientOptions::default())?;
//! let secret = client.get::<Secret>(&ObjectKey::new("shop", "db"))?; // asks again
//! assert_eq!(secret.data.as_ref().unwrap()["password"].0, b"made-up");
//! # }
//! # Ok::<(), kubecache::Error>(())
//! ```
//!
//! A test server misbehaves on command. The tables [`FAULTS`] and [`SERVER_FAULTS`] list all
//! faults, each with an example and the behaviour of a correct client. A [`Fault`] selects the
//! requests that meet it.
//!
//! [kubernetes]: crate::manual::glossary#kubernetes
//! [objects]: crate::manual::glossary#objects-and-the-server

pub mod objects;
pub mod world;

mod api;
#[cfg(test)]
pub(crate) mod bad;
mod control;
mod fuzz;
mod http;
mod json;
mod manifests;
mod readings;
mod record;
mod recording;
mod server;
mod source;

pub use api::{AccessRule, ApiResource, ApiServer, ApiServerBuilder, DropParameter};
pub use control::ControlServer;
pub use fuzz::{FUZZ_TARGETS, FuzzTarget};
pub use http::{
    Act, Answered, CertificateFlaw, FAULTS, Fault, FaultDescription, FaultId, Part, Received,
    SERVER_FAULTS, TestAuthority, Unfinished,
};
pub use readings::fuzz_reading;
pub use record::Recorder;
pub use recording::{Answer, Chunk, End, Exchange, Recording};
pub use server::{FixtureServer, FixtureServerBuilder, Speed, Step};
pub use source::{FakeSource, RequestKind, SeenRequest, SourceFault};

pub use crate::wire::{EventDecoder, ListDecoder};

/// Returns the names of the crate's locks that the calling thread holds. Code that the crate calls
/// can test with it that the crate holds none. Builds without debug assertions return none.
pub fn held_locks() -> Vec<&'static str> {
    crate::sync::held().collect()
}

#[cfg(test)]
mod tests;
