//! The demonstration: the embedded recordings, served to itself on loopback.

use kubecache::Error;
use kubecache::http::Config;
use kubecache::testing::{FixtureServer, Recording, Speed};

/// The node whose story was recorded.
pub(crate) const NODE: &str = "node-1";

/// The recording, part of the program.
const RECORDING: &str = include_str!("../../fixtures/recordings/node-1.jsonl");

/// Starts the server; a `speed` of 0 is everything at once.
pub(crate) fn serve(speed: f64) -> Result<FixtureServer, Error> {
    let speed = if speed > 0.0 {
        Speed::Times(speed)
    } else {
        Speed::AtOnce
    };
    let recording = Recording::parse("the embedded recording", RECORDING)?;
    let server = FixtureServer::replaying(recording).speed(speed);
    // A demonstration that is watched longer than the story goes on in silence.
    server.endless().start()
}

/// The way to it.
pub(crate) fn config(server: &FixtureServer) -> Result<Config, Error> {
    Config::for_server(&server.url())
}
