//! For tests of this crate and of others: recordings of real servers, the server that replays them, and builders of
//! objects. Feature `testing`.

pub mod objects;

mod http1;
mod json;
mod record;
mod recording;
mod server;
mod service;

pub use record::Recorder;
pub use recording::{Answer, Chunk, End, Exchange, Recording};
pub use server::{
    Act, Answered, Fault, FixtureServer, FixtureServerBuilder, Received, Speed, Step,
};

#[cfg(test)]
mod tests;
