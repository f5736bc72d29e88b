//! The demonstration: the embedded recording, served to itself on loopback.

use kubecache::Error;
use kubecache::http::Config;
use kubecache::testing::FixtureServer;

use crate::replay;

/// The namespace whose pods were recorded.
pub(crate) const NAMESPACE: &str = "shop";

/// The recording, part of the program.
const RECORDING: &str = include_str!("../../fixtures/recordings/shop-pods.jsonl");

/// The server of the demonstration; it ends when it is dropped.
pub(crate) struct Demo(FixtureServer);

impl Demo {
    /// Starts the server; a `speed` of 0 is everything at once.
    pub(crate) fn serve(speed: f64) -> Result<Self, Error> {
        replay::serve(&[RECORDING], speed).map(Self)
    }

    /// Where it listens.
    pub(crate) fn url(&self) -> String {
        self.0.url()
    }

    /// The way to it.
    pub(crate) fn config(&self) -> Result<Config, Error> {
        Ok(Config::for_server(&self.url())?.with_namespace(NAMESPACE))
    }
}
