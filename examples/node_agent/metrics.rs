//! What the agent counts, for Prometheus: the library's series, and what runs here.

use kubecache::Error;
use kubecache::http::ClientOptions;
use kubecache::manager::{ChangeDetection, ManagerOptions};
use kubecache::metrics::{CONTENT_TYPE, Exposition};
use kubecache::object::Object;
use kubecache::reflector::ReflectorOptions;

use crate::bind::BindAddress;
use crate::exchange::Page;

/// Why the flag is refused: it is not.
pub(crate) const MISSING: Option<&str> = None;

const BUILD_INFO: &str = concat!(
    "# HELP kubecache_build_info What runs here; the value is always 1.\n",
    "# TYPE kubecache_build_info gauge\n",
    "kubecache_build_info{version=\"",
    env!("CARGO_PKG_VERSION"),
    "\"} 1\n",
);

/// What counts, and what tells of it. Cloning shares it.
#[derive(Clone, Debug)]
pub(crate) struct Metrics(Exposition);

impl Metrics {
    /// Metrics, if there is an address to serve them at.
    pub(crate) fn at(address: Option<&BindAddress>) -> Option<Self> {
        address.map(|_| Self(Exposition::new()))
    }

    /// The page `/metrics`.
    pub(crate) fn page(&self) -> Page {
        Page {
            code: 200,
            content_type: CONTENT_TYPE,
            body: [&self.0.text(), BUILD_INFO].concat(),
        }
    }

    /// Counts what the client of the agent does.
    pub(crate) fn client(&self, options: ClientOptions) -> Result<ClientOptions, Error> {
        Ok(options.metrics(self.0.client("node-agent")?))
    }

    /// Counts what a reflector of the agent's own does.
    pub(crate) fn follow<K: Object>(
        &self,
        name: &str,
        options: ReflectorOptions,
    ) -> Result<ReflectorOptions, Error> {
        Ok(options.metrics(self.0.reflector::<K>(name)?))
    }

    /// Counts what a manager of this kind does.
    pub(crate) fn manage<K: Object>(
        &self,
        strategy: ChangeDetection,
        options: ManagerOptions,
    ) -> Result<ManagerOptions, Error> {
        Ok(options.metrics(self.0.manager::<K>(strategy)?))
    }
}
