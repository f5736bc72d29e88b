//! What the agent counts, for Prometheus: the library's series, and what runs here.

use std::time::SystemTime;

use kubecache::Error;
use kubecache::clock::Clock;
use kubecache::endpoints::WebPage;
use kubecache::http::ClientOptions;
use kubecache::manager::{ChangeDetection, ManagerOptions};
use kubecache::metrics::{CONTENT_TYPE, Exposition};
use kubecache::object::Object;
use kubecache::reflector::ReflectorOptions;

use crate::bind::BindAddress;
use crate::files::Files;
use crate::health::Health;
use crate::outflow::{STDERR, STDOUT};
use crate::process::{self, SeriesText, number};
use crate::snapshot::Keeper;
use crate::teller::HookRuns;

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
fn own(of: &Health) -> String {
    let mut series = SeriesText::default();
    series.add(
        "kubecache_agent_dropped_total",
        "counter",
        "Rows and lines of the log that a slow reader did not get",
        &[
            ("{what=\"rows\"}", number(STDOUT.dropped())),
            ("{what=\"log\"}", number(STDERR.dropped())),
        ],
    );
    if let Some(files) = &of.files {
        add_files(&mut series, files);
    }
    if let Some(runs) = of.files.as_ref().and_then(|files| files.hook_runs()) {
        add_runs(&mut series, &runs);
    }
    if let Some(keeper) = &of.keeper {
        add_snapshot(&mut series, keeper);
    }
    process::add_to(&mut series);
    series.0
}

fn add_files(series: &mut SeriesText, files: &Files) {
    let (written, failed, last_success) = files.readings();
    let count = |objects: usize| number(u64::try_from(objects).unwrap_or(u64::MAX));
    series.add(
        "kubecache_agent_files_objects",
        "gauge",
        "Objects of --output-dir that have their files, and those that could not be written",
        &[
            ("{state=\"written\"}", count(written)),
            ("{state=\"failed\"}", count(failed)),
        ],
    );
    if let Some(time) = last_success {
        series.add(
            "kubecache_agent_files_last_success_timestamp_seconds",
            "gauge",
            "When each object of --output-dir had its files last",
            &[("", seconds(time))],
        );
    }
}

fn add_runs(series: &mut SeriesText, runs: &HookRuns) {
    series.add(
        "kubecache_agent_hook_runs_total",
        "counter",
        "Runs of --exec-on-change that have ended, by how",
        &[
            ("{result=\"success\"}", number(runs.succeeded)),
            ("{result=\"failure\"}", number(runs.failed)),
        ],
    );
    series.add(
        "kubecache_agent_hook_last_run_seconds",
        "gauge",
        "How long the last run of --exec-on-change took",
        &[("", runs.last_took.as_secs_f64())],
    );
    let running = runs.took(Clock::system().now());
    series.add(
        "kubecache_agent_hook_running_seconds",
        "gauge",
        "How long the present run of --exec-on-change has taken; 0 without one",
        &[("", running.as_secs_f64())],
    );
}

fn add_snapshot(series: &mut SeriesText, keeper: &Keeper) {
    let (written, bytes, has_failed) = keeper.readings();
    series.add(
        "kubecache_agent_snapshot_failed",
        "gauge",
        "Whether the last write of --snapshot failed, or left out an object",
        &[("", f64::from(u8::from(has_failed)))],
    );
    let Some(written) = written else {
        return;
    };
    let age = SystemTime::now().duration_since(written);
    series.add(
        "kubecache_agent_snapshot_age_seconds",
        "gauge",
        "How long ago this process wrote the file of --snapshot",
        &[("", age.unwrap_or_default().as_secs_f64())],
    );
    series.add(
        "kubecache_agent_snapshot_bytes",
        "gauge",
        "The size of the file of --snapshot",
        &[("", number(u64::try_from(bytes).unwrap_or(u64::MAX)))],
    );
}

fn seconds(time: SystemTime) -> f64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
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
    pub(crate) fn page(&self, of: &Health) -> WebPage {
        let series = [&self.0.text(), BUILD_INFO, &own(of)].concat();
        WebPage::text(series).content_type(CONTENT_TYPE)
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
