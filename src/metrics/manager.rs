//! The series of managers: what they keep, and how their reads go.

use std::time::Duration;

use prometheus::{Histogram, IntCounterVec};

use super::page::{Labels, Metric, Page, number};
use super::readings::Readings;
use super::reflector::OwnerSeries;
use crate::error::{Error, ErrorKind};
use crate::manager::{ChangeDetection, ManagerMetrics, ManagerReading, ManagerState};

const OBJECTS: Metric = Metric {
    name: "kubecache_object_cache_objects",
    help: "Number of objects that registered pods reference",
};
const REFERENCES: Metric = Metric {
    name: "kubecache_object_cache_references",
    help: "Number of references that registered pods hold",
};
const WATCHES: Metric = Metric {
    name: "kubecache_object_cache_watches",
    help: "Number of objects whose watch is open or being opened",
};
const DURATION: Metric = Metric {
    name: "kubecache_object_cache_get_duration_seconds",
    help: "How long reads of objects take, failed ones included",
};
const ERRORS: Metric = Metric {
    name: "kubecache_object_cache_get_errors_total",
    help: "Total number of reads of objects that failed, by the kind of error",
};

/// From a read out of memory to the longest wait by default.
const READ_SECONDS: [f64; 13] = [
    0.000_001, 0.000_01, 0.000_1, 0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// One series of each name, for all managers of one kind and strategy.
#[derive(Debug)]
pub(super) struct ManagerSeries {
    kind: &'static str,
    strategy: ChangeDetection,
    labels: Labels,
    duration: Histogram,
    errors: IntCounterVec,
    readings: Readings<ManagerReading>,
}

impl ManagerSeries {
    pub(super) fn new(kind: &'static str, strategy: ChangeDetection) -> Result<Self, Error> {
        let labels = Labels::new([("kind", kind), ("strategy", strategy.as_str())]);
        Ok(Self {
            duration: DURATION.histogram(&labels, &READ_SECONDS)?,
            errors: ERRORS.counters(&labels, "reason")?,
            readings: Readings::new(ManagerReading::is_over),
            kind,
            strategy,
            labels,
        })
    }

    /// Shows all but the reflectors' part, which has its own place.
    pub(super) fn show(&self, page: &Page) {
        page.show(&self.duration);
        page.show(&self.errors);
        let readings = self.readings.all();
        let running: Vec<ManagerState> =
            readings.iter().filter_map(ManagerReading::state).collect();
        if running.is_empty() {
            return;
        }
        let sum = |count: fn(&ManagerState) -> usize| running.iter().map(count).sum();
        page.value(OBJECTS, &self.labels, number(sum(|state| state.objects)));
        page.value(
            REFERENCES,
            &self.labels,
            number(sum(|state| state.references)),
        );
        page.value(WATCHES, &self.labels, number(sum(|state| state.watches)));
    }
}

impl ManagerMetrics for OwnerSeries<ManagerSeries> {
    fn manager_started(&self, reading: ManagerReading) -> Result<(), Error> {
        let (kind, strategy) = (reading.kind(), reading.change_detection());
        if (kind, strategy) != (self.own.kind, self.own.strategy) {
            let text = format!(
                "metrics for a manager of {} by {} were given to one of {kind} by {strategy}",
                self.own.kind, self.own.strategy
            );
            return Err(Error::new(ErrorKind::Config, text));
        }
        self.own.readings.add(reading);
        Ok(())
    }

    fn read(&self, took: Duration, failure: Option<&Error>) {
        self.own.duration.observe(took.as_secs_f64());
        if let Some(failure) = failure {
            let reason = format!("{:?}", failure.kind());
            self.own.errors.with_label_values(&[&reason]).inc();
        }
    }
}
