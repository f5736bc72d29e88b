//! The metrics' place in an agent that is built without them: it says how to get them.

use kubecache::Error;
use kubecache::endpoints::WebPage;
use kubecache::http::ClientOptions;
use kubecache::manager::{ChangeDetection, ManagerOptions};
use kubecache::object::Object;
use kubecache::reflector::ReflectorOptions;

use crate::bind::BindAddress;
use crate::health::Health;

/// Why the flag is refused.
pub(crate) const MISSING: Option<&str> =
    Some("this agent was built without metrics; build it with `--features metrics`");

/// Metrics that cannot be: without the feature `metrics` there is no value of it.
#[derive(Clone, Debug)]
pub(crate) enum Metrics {}

#[expect(
    clippy::extra_unused_type_parameters,
    reason = "they are what metrics have that can be"
)]
impl Metrics {
    /// None: the flag that gives an address is refused.
    pub(crate) fn at(_address: Option<&BindAddress>) -> Option<Self> {
        None
    }

    /// The page `/metrics`.
    pub(crate) fn page(&self, _of: &Health) -> WebPage {
        match *self {}
    }

    /// Counts what the client of the agent does.
    pub(crate) fn client(&self, _options: ClientOptions) -> Result<ClientOptions, Error> {
        match *self {}
    }

    /// Counts what a reflector of the agent's own does.
    pub(crate) fn follow<K: Object>(
        &self,
        _name: &str,
        _options: ReflectorOptions,
    ) -> Result<ReflectorOptions, Error> {
        match *self {}
    }

    /// Counts what a manager of this kind does.
    pub(crate) fn manage<K: Object>(
        &self,
        _strategy: ChangeDetection,
        _options: ManagerOptions,
    ) -> Result<ManagerOptions, Error> {
        match *self {}
    }
}
