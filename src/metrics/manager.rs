//! The series of managers: their objects, and the results of their reads.

use prometheus::{Histogram, IntCounterVec, Registry};
use std::borrow::Cow;

use super::page::{Labels, Metric, metrics, number, show};
use super::readings::Readings;
use super::reflector::ReflectorSeries;
use crate::error::Error;
use crate::manager::{ChangeDetection, ManagerMetric, ManagerState};
use crate::sync::Arc;

metrics! {
    OBJECTS: "kubecache_object_cache_objects",
        "Number of objects that registered pods reference";
    REFERENCES: "kubecache_object_cache_references",
        "Number of references that registered pods hold";
    WATCHES: "kubecache_object_cache_watches",
        "Number of watches that are open or being opened; that of a namespace is one";
    POLLED: "kubecache_object_cache_polled",
        "Number of objects that are polled, since there is no room for their watches";
    ABSENT: "kubecache_object_cache_absent",
        "Number of referenced objects that the server does not have";
    DURATION: "kubecache_object_cache_get_duration_seconds",
        "How long reads of objects take, failed ones included";
    ERRORS: "kubecache_object_cache_get_errors_total",
        "Total number of reads of objects that failed, by the kind of error";
}

/// From a read from memory to the longest default wait.
const READ_SECONDS: [f64; 13] = [
    0.000_001, 0.000_01, 0.000_1, 0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// One series of each name, for all managers of one kind and strategy, and those of their
/// reflectors.
#[derive(Debug)]
pub(super) struct ManagerSeries {
    of: (Cow<'static, str>, ChangeDetection),
    labels: Labels,
    duration: Histogram,
    errors: IntCounterVec,
    readings: Readings<ManagerState>,
    /// `None` for managers that do not watch.
    reflectors: Option<Arc<ReflectorSeries>>,
}

impl ManagerSeries {
    pub(super) fn new(
        of: (Cow<'static, str>, ChangeDetection),
        labels: Labels,
        reflectors: Option<Arc<ReflectorSeries>>,
    ) -> Result<Self, Error> {
        Ok(Self {
            duration: DURATION.histogram(&labels, &READ_SECONDS)?,
            errors: ERRORS.counters(&labels, &["reason"])?,
            readings: Readings::default(),
            of,
            labels,
            reflectors,
        })
    }

    /// # Errors
    ///
    /// `Config` at the start of a manager of another kind or strategy.
    pub(super) fn count(&self, metric: &ManagerMetric) -> Result<(), Error> {
        match metric {
            ManagerMetric::Started {
                kind,
                change_detection,
                reading,
            } => {
                let (of, by) = &self.of;
                if (kind, change_detection) != (of, by) {
                    return Err(Error::config(format!(
                        "metrics for a manager of {of} by {by} were given to one of {kind} by \
                         {change_detection}"
                    )));
                }
                self.readings.add(reading);
            }
            ManagerMetric::Read { took, failure } => {
                self.duration.observe(took.as_secs_f64());
                if let Some(failure) = failure {
                    let reason = format!("{:?}", failure.kind());
                    self.errors.with_label_values(&[&reason]).inc();
                }
            }
            ManagerMetric::Reflector(metric) => {
                self.reflectors.iter().for_each(|it| it.count(metric));
            }
        }
        Ok(())
    }

    /// Shows all series but the reflectors', which are shown elsewhere.
    pub(super) fn show(&self, page: &Registry) {
        show(page, [&self.duration]);
        show(page, [&self.errors]);
        let states = self.readings.states();
        if states.is_empty() {
            return;
        }
        let sum = |metric: Metric, count: fn(&ManagerState) -> usize| {
            metric.show(page, &self.labels, number(states.iter().map(count).sum()));
        };
        sum(OBJECTS, |state| state.objects);
        sum(REFERENCES, |state| state.references);
        sum(WATCHES, |state| state.watches);
        sum(POLLED, |state| state.polled);
        sum(ABSENT, |state| state.absent);
    }
}
