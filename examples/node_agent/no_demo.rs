//! The demonstration's place in an agent that is built without recordings: it says how to get them.

use kubecache::http::Config;
use kubecache::{Error, ErrorKind};

/// The node whose story was recorded.
pub(crate) const NODE: &str = "node-1";

/// What to do without a cluster: this agent has nothing to show.
pub(crate) const HINT: Option<&str> = None;

/// A demonstration that cannot be: without the feature `testing` there is no value of it.
pub(crate) enum Demo {}

impl Demo {
    /// Says how to build an agent that has the recordings.
    pub(crate) fn serve(_speed: f64) -> Result<Self, Error> {
        let what = "--demo: this agent was built without the recordings; build it with \
            `--features testing`";
        Err(Error::new(ErrorKind::Config, what))
    }

    /// Where it listens.
    pub(crate) fn url(&self) -> String {
        match *self {}
    }

    /// The way to it.
    pub(crate) fn config(&self) -> Result<Config, Error> {
        match *self {}
    }
}
