//! The series of informers: client-go's names (RF-52), plus the lag of each handler.

use std::collections::BTreeMap;
use std::time::Duration;

use prometheus::core::Collector as _;
use prometheus::proto::{self, LabelPair, MetricFamily};
use prometheus::{Histogram, IntCounterVec, IntGauge, Registry};

use super::page::{Labels, Metric, metrics, number, show};
use super::position::set_largest;
use super::readings::Readings;
use super::reflector::ReflectorSeries;
use crate::error::Error;
use crate::informer::{InformerMetric, InformerState};
use crate::sync::Arc;

metrics! {
    LATENCY: "informer_processing_latency_seconds",
        "Time taken to process events after popping from the queue.";
    STORE_VERSION: "informer_store_resource_version",
        "The 15 least significant digits of the resource version of the store.";
    UNDECODABLE: "kubecache_informer_undecodable_objects",
        "Number of objects that are set aside because they do not decode";
    HANDLER_QUEUED: "kubecache_informer_handler_queued_items",
        "Number of notifications that wait for the handler";
    HANDLER_LAG: "kubecache_informer_handler_lag_seconds",
        "Age of the oldest notification that the handler has not returned from; 0 if there is \
        none";
    HANDLER_PANICS: "kubecache_informer_handler_panics_total",
        "Total number of notifications that the handler lost by a panic";
}

/// The buckets of client-go.
const LATENCY_SECONDS: [f64; 12] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// The label with the name of a handler.
const HANDLER: &str = "handler";

/// The label of all handlers without their own name, because thread names are never reused.
const UNNAMED: &str = "unnamed";

/// One series of each name, for all informers with the same labels, and those of their reflectors.
#[derive(Debug)]
pub(super) struct InformerSeries {
    labels: Labels,
    latency: Histogram,
    panics: IntCounterVec,
    store_version: IntGauge,
    readings: Readings<InformerState>,
    reflectors: Arc<ReflectorSeries>,
}

impl InformerSeries {
    pub(super) fn new(labels: Labels, reflectors: Arc<ReflectorSeries>) -> Result<Self, Error> {
        Ok(Self {
            latency: LATENCY.histogram(&labels, &LATENCY_SECONDS)?,
            panics: HANDLER_PANICS.counters(&labels, &[HANDLER])?,
            store_version: STORE_VERSION.int_gauge(&labels)?,
            readings: Readings::default(),
            labels,
            reflectors,
        })
    }

    pub(super) fn count(&self, metric: &InformerMetric) {
        match metric {
            InformerMetric::Started(reading) => self.readings.add(reading),
            InformerMetric::Processed(took) => self.latency.observe(took.as_secs_f64()),
            InformerMetric::HandlerPanicked(handler) => {
                let handler = handler.as_deref().unwrap_or(UNNAMED);
                self.panics.with_label_values(&[handler]).inc();
            }
            InformerMetric::Reflector(metric) => self.reflectors.count(metric),
        }
    }

    /// Shows all series but the reflectors', which are shown elsewhere.
    pub(super) fn show(&self, page: &Registry) {
        // Read before the states: a handler that is new since then keeps its count.
        let counted = self.panics.collect();
        let states = self.readings.states();
        let versions = states.iter().map(|state| state.resource_version.clone());
        set_largest(&self.store_version, versions);
        show(page, [&self.latency]);
        show(page, [&self.store_version]);
        self.show_handlers(&states, &counted, page);
        if !states.is_empty() {
            let undecodable = states.iter().map(|state| state.undecodable).sum();
            UNDECODABLE.show(page, &self.labels, number(undecodable));
        }
    }

    fn show_handlers(&self, states: &[InformerState], counted: &[MetricFamily], page: &Registry) {
        // The number of notifications that wait for the handlers of a name, and the longest lag.
        let mut by_name: BTreeMap<&str, (usize, Duration)> = BTreeMap::new();
        for handler in states.iter().flat_map(|state| &state.handlers) {
            let name = handler.given_name().unwrap_or(UNNAMED);
            let readings = handler.readings();
            let (queued, lag) = by_name.entry(name).or_default();
            *queued = queued.saturating_add(readings.queued);
            *lag = (*lag).max(readings.lag.unwrap_or_default());
        }
        let counted = counted.iter().flat_map(MetricFamily::get_metric);
        let labels = counted.flat_map(proto::Metric::get_label);
        let names = labels.filter(|label| label.name() == HANDLER);
        for name in names.map(LabelPair::value) {
            if !by_name.contains_key(name) {
                // Another scrape may have removed it.
                let _gone = self.panics.remove_label_values(&[name]);
            }
        }
        for (name, (queued, lag)) in by_name {
            let mut labels = self.labels.clone();
            labels.insert(HANDLER.to_owned(), name.to_owned());
            HANDLER_QUEUED.show(page, &labels, number(queued));
            HANDLER_LAG.show(page, &labels, lag.as_secs_f64());
            // The counter exists from the first scrape on, with no loss yet.
            drop(self.panics.with_label_values(&[name]));
        }
        show(page, [&self.panics]);
    }
}
