//! The series of reflectors: client-go's names (RF-51), plus the silence of the server.

use std::time::Instant;

use prometheus::{Histogram, IntCounter, IntGauge, Registry};

use super::page::{Labels, Metric, SECONDS, metrics, number, show};
use super::position::set_largest;
use super::readings::Readings;
use crate::error::Error;
use crate::reflector::{ReflectorMetric, ReflectorStatus};

metrics! {
    LISTS: "reflector_lists_total",
        "Total number of API lists done by the reflectors";
    LIST_DURATION: "reflector_list_duration_seconds",
        "How long an API list takes to return and decode for the reflectors";
    ITEMS_PER_LIST: "reflector_items_per_list",
        "How many items an API list returns to the reflectors";
    WATCHES: "reflector_watches_total",
        "Total number of API watches done by the reflectors";
    SHORT_WATCHES: "reflector_short_watches_total",
        "Total number of API watches that the server ended within a second, without an event";
    WATCH_DURATION: "reflector_watch_duration_seconds",
        "How long the reflectors' watches were open";
    ITEMS_PER_WATCH: "reflector_items_per_watch",
        "How many events, bookmarks included, an API watch returns to the reflectors";
    LAST_VERSION: "reflector_last_resource_version",
        "Last resource version seen by the reflectors: its 15 least significant digits";
    SILENCE: "kubecache_reflector_silence_seconds",
        "Time since the server last confirmed the content of the reflector that was left alone \
        longest";
    FAILURES: "kubecache_reflector_consecutive_failures",
        "Requests that failed one after the other, of the reflector with most of them";
    UNDECODABLE: "kubecache_reflector_undecodable_total",
        "Total number of items and events that were set aside because they do not decode";
}

/// Up to the longest time-out that managers ask for.
const WATCH_SECONDS: [f64; 10] = [
    1.0, 5.0, 30.0, 60.0, 150.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0,
];
const ITEMS: [f64; 8] = [0.0, 1.0, 10.0, 100.0, 500.0, 1_000.0, 10_000.0, 100_000.0];

/// One series of each name, for all reflectors that share the labels.
#[derive(Debug)]
pub(super) struct ReflectorSeries {
    labels: Labels,
    lists: IntCounter,
    list_duration: Histogram,
    items_per_list: Histogram,
    watches: IntCounter,
    short_watches: IntCounter,
    watch_duration: Histogram,
    items_per_watch: Histogram,
    last_version: IntGauge,
    undecodable: IntCounter,
    readings: Readings<(ReflectorStatus, Instant)>,
}

impl ReflectorSeries {
    pub(super) fn new(labels: Labels) -> Result<Self, Error> {
        Ok(Self {
            lists: LISTS.counter(&labels)?,
            list_duration: LIST_DURATION.histogram(&labels, &SECONDS)?,
            items_per_list: ITEMS_PER_LIST.histogram(&labels, &ITEMS)?,
            watches: WATCHES.counter(&labels)?,
            short_watches: SHORT_WATCHES.counter(&labels)?,
            watch_duration: WATCH_DURATION.histogram(&labels, &WATCH_SECONDS)?,
            items_per_watch: ITEMS_PER_WATCH.histogram(&labels, &ITEMS)?,
            last_version: LAST_VERSION.int_gauge(&labels)?,
            undecodable: UNDECODABLE.counter(&labels)?,
            readings: Readings::default(),
            labels,
        })
    }

    pub(super) fn count(&self, metric: &ReflectorMetric) {
        match metric {
            ReflectorMetric::Started(reading) => self.readings.add(reading),
            ReflectorMetric::ListStarted => self.lists.inc(),
            ReflectorMetric::Listed { items, took } => {
                self.list_duration.observe(took.as_secs_f64());
                self.items_per_list.observe(number(*items));
            }
            ReflectorMetric::WatchStarted => self.watches.inc(),
            ReflectorMetric::WatchEnded { events, lived } => {
                self.watch_duration.observe(lived.as_secs_f64());
                self.items_per_watch.observe(number(*events));
            }
            ReflectorMetric::ShortWatch => self.short_watches.inc(),
            ReflectorMetric::Undecodable => self.undecodable.inc(),
        }
    }

    pub(super) fn show(&self, page: &Registry) {
        show(page, [&self.lists, &self.watches]);
        show(page, [&self.short_watches, &self.undecodable]);
        show(page, [&self.list_duration, &self.watch_duration]);
        show(page, [&self.items_per_list, &self.items_per_watch]);
        let states = self.readings.states();
        let statuses = states.iter().map(|(status, _)| status);
        let versions = statuses.clone().map(|it| it.resource_version.clone());
        set_largest(&self.last_version, versions);
        show(page, [&self.last_version]);
        let silences = states.iter().map(|(status, now)| status.silence(*now));
        if let Some(silence) = silences.max() {
            SILENCE.show(page, &self.labels, silence.as_secs_f64());
        }
        if let Some(failures) = statuses.map(|status| status.failures.count()).max() {
            FAILURES.show(page, &self.labels, failures.into());
        }
    }
}
