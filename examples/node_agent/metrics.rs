//! What the agent counts, for Prometheus: the library's series, and what runs here.

use kubecache::Error;
use kubecache::clock::Clock;
use kubecache::http::ClientOptions;
use kubecache::manager::{ChangeDetection, ManagerOptions};
use kubecache::metrics::{CONTENT_TYPE, Exposition};
use kubecache::object::Object;
use kubecache::reflector::ReflectorOptions;

use crate::bind::BindAddress;
use crate::exchange::Page;
use crate::files::Files;
use crate::outflow::{STDERR, STDOUT};

/// Why the flag is refused: it is not.
pub(crate) const MISSING: Option<&str> = None;

const BUILD_INFO: &str = concat!(
    "# HELP kubecache_build_info What runs here; the value is always 1.\n",
    "# TYPE kubecache_build_info gauge\n",
    "kubecache_build_info{version=\"",
    env!("CARGO_PKG_VERSION"),
    "\"} 1\n",
);

/// The series of the agent's own.
fn own(files: Option<&Files>) -> String {
    let mut lines = Vec::new();
    let mut series = |name: &str, kind: &str, help: &str, values: &[(&str, f64)]| {
        lines.push(format!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
        lines.extend(
            values
                .iter()
                .map(|(labels, value)| format!("{name}{labels} {value}\n")),
        );
    };
    #[expect(
        clippy::cast_precision_loss,
        clippy::as_conversions,
        reason = "a number of events in a process"
    )]
    let number = |count: u64| count as f64;
    series(
        "kubecache_agent_dropped_total",
        "counter",
        "Rows and lines of the log that a slow reader did not get",
        &[
            ("{what=\"rows\"}", number(STDOUT.dropped())),
            ("{what=\"log\"}", number(STDERR.dropped())),
        ],
    );
    let Some(runs) = files.and_then(Files::hook_runs) else {
        return lines.concat();
    };
    series(
        "kubecache_agent_hook_runs_total",
        "counter",
        "Runs of --exec-on-change that have ended, by how",
        &[
            ("{result=\"success\"}", number(runs.succeeded)),
            ("{result=\"failure\"}", number(runs.failed)),
        ],
    );
    series(
        "kubecache_agent_hook_last_run_seconds",
        "gauge",
        "How long the last run of --exec-on-change took",
        &[("", runs.last_took.as_secs_f64())],
    );
    let running = runs.took(Clock::system().now());
    series(
        "kubecache_agent_hook_running_seconds",
        "gauge",
        "How long the present run of --exec-on-change has taken; 0 without one",
        &[("", running.as_secs_f64())],
    );
    lines.concat()
}

/// What counts, and what tells of it. Cloning shares it.
#[derive(Clone, Debug)]
pub(crate) struct Metrics(Exposition);

impl Metrics {
    /// Metrics, if there is an address to serve them at.
    pub(crate) fn at(address: Option<&BindAddress>) -> Option<Self> {
        address.map(|_| Self(Exposition::new()))
    }

    /// The page `/metrics`.
    pub(crate) fn page(&self, files: Option<&Files>) -> Page {
        Page {
            code: 200,
            content_type: CONTENT_TYPE,
            body: [&self.0.text(), BUILD_INFO, &own(files)].concat(),
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
