//! The series of clients: the runs of their credential plugins.

use std::time::Instant;

use prometheus::{IntCounterVec, Registry};

use super::page::{Labels, Metric, show};
use crate::clock::{Clock, later};
use crate::error::Error;
use crate::http::ClientMetric;
use crate::sync::{Mutex, Rank};

const CALLS: Metric = Metric {
    name: "rest_client_exec_plugin_call_total",
    help: "Number of runs of a credential plugin, by exit code and by how it ended",
};
const TTL: Metric = Metric {
    name: "rest_client_exec_plugin_ttl_seconds",
    help: "Time until the credentials of the last run of a credential plugin expire",
};

/// One series of each name, for all clients that share the labels.
#[derive(Debug)]
pub(super) struct ClientSeries {
    labels: Labels,
    calls: IntCounterVec,
    /// When the credentials of the last successful run expire.
    expires: Mutex<Option<Instant>>,
}

impl ClientSeries {
    pub(super) fn new(labels: Labels) -> Result<Self, Error> {
        Ok(Self {
            calls: CALLS.counters(&labels, &["code", "call_status"])?,
            labels,
            expires: Mutex::ranked(Rank::METRICS, None),
        })
    }

    pub(super) fn count(&self, metric: &ClientMetric) {
        let ClientMetric::PluginRun(run) = metric;
        let code = run.exit_code.to_string();
        self.calls
            .with_label_values(&[&*code, run.end.as_str()])
            .inc();
        if let Some(valid_for) = run.valid_for {
            *self.expires.lock() = Some(later(Clock::system().now(), valid_for));
        }
    }

    pub(super) fn show(&self, page: &Registry) {
        show(page, [&self.calls]);
        let expires = *self.expires.lock();
        if let Some(expires) = expires {
            let now = Clock::system().now();
            let left = expires.saturating_duration_since(now).as_secs_f64();
            let over = now.saturating_duration_since(expires).as_secs_f64();
            TTL.show(page, &self.labels, left - over);
        }
    }
}
