//! The demonstration: the embedded recordings, served to itself on loopback.

use kubecache::Error;
use kubecache::http::Config;
use kubecache::testing::{FixtureServer, Recording, Speed};

/// The node whose story was recorded.
pub(crate) const NODE: &str = "node-1";

/// The recording, part of the program.
const RECORDING: &str = include_str!("../../fixtures/recordings/node-1.jsonl");

/// The node's own object, which the agent of the story did not follow.
const OWN_NODE: &str = include_str!("../../fixtures/recordings/own-node.jsonl");

/// The server of the demonstration; it ends when it is dropped.
pub(crate) struct Demo(FixtureServer);

impl Demo {
    /// Starts the server; a `speed` of 0 is everything at once.
    pub(crate) fn serve(speed: f64) -> Result<Self, Error> {
        let speed = if speed > 0.0 {
            Speed::Times(speed)
        } else {
            Speed::AtOnce
        };
        let recording = Recording::parse("the embedded recording", RECORDING)?;
        let own_node = Recording::parse("the embedded node", OWN_NODE)?;
        let server = FixtureServer::replaying(recording).and(own_node);
        let server = server.speed(speed);
        // A demonstration that is watched longer than the story goes on in silence.
        Ok(Self(server.endless().start()?))
    }

    /// Where it listens.
    pub(crate) fn url(&self) -> String {
        self.0.url()
    }

    /// The way to it.
    pub(crate) fn config(&self) -> Result<Config, Error> {
        Config::for_server(&self.url())
    }
}
