//! The demonstration: the embedded recordings, served to itself on loopback.

use kubecache::Error;
use kubecache::http::Config;
use kubecache::testing::FixtureServer;

use crate::replay;

/// The node whose story was recorded.
pub(crate) const NODE: &str = "node-1";

/// What to do without a cluster.
pub(crate) const HINT: Option<&str> =
    Some("To see the agent at work without a cluster, run it with --demo.");

/// The recording, part of the program.
const RECORDING: &str = include_str!("../../fixtures/recordings/node-1.jsonl");

/// The node's own object, which the agent of the story did not follow.
const OWN_NODE: &str = include_str!("../../fixtures/recordings/own-node.jsonl");

/// The server of the demonstration; it ends when it is dropped.
pub(crate) struct Demo(FixtureServer);

impl Demo {
    /// Starts the server; a `speed` of 0 is everything at once.
    pub(crate) fn serve(speed: f64) -> Result<Self, Error> {
        replay::serve(&[RECORDING, OWN_NODE], speed).map(Self)
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
