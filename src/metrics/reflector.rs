//! The series of reflectors: client-go's names (RF-51), and beside them what tells how long a
//! server has been silent.

use std::time::Instant;

use prometheus::{Histogram, IntCounter, IntGauge, Registry};

use super::page::{Labels, Metric, number, show};
use super::position::set_largest;
use super::readings::Readings;
use crate::error::Error;
use crate::reflector::{ReflectorMetric, ReflectorStatus};

const LISTS: Metric = Metric {
    name: "reflector_lists_total",
    help: "Total number of API lists done by the reflectors",
};
const LIST_DURATION: Metric = Metric {
    name: "reflector_list_duration_seconds",
    help: "How long an API list takes to return and decode for the reflectors",
};
const ITEMS_PER_LIST: Metric = Metric {
    name: "reflector_items_per_list",
    help: "How many items an API list returns to the reflectors",
};
const WATCHES: Metric = Metric {
    name: "reflector_watches_total",
    help: "Total number of API watches done by the reflectors",
};
const SHORT_WATCHES: Metric = Metric {
    name: "reflector_short_watches_total",
    help: "Total number of API watches that the server ended within a second, without an event",
};
const WATCH_DURATION: Metric = Metric {
    name: "reflector_watch_duration_seconds",
    help: "How long the reflectors' watches were open",
};
const ITEMS_PER_WATCH: Metric = Metric {
    name: "reflector_items_per_watch",
    help: "How many events, bookmarks included, an API watch returns to the reflectors",
};
const LAST_VERSION: Metric = Metric {
    name: "reflector_last_resource_version",
    help: "Last resource version seen by the reflectors: its 15 least significant digits",
};
const SILENCE: Metric = Metric {
    name: "kubecache_reflector_silence_seconds",
    help: "Time since the server last confirmed the content of the reflector that was left alone \
        longest",
};
const FAILURES: Metric = Metric {
    name: "kubecache_reflector_consecutive_failures",
    help: "Requests that failed one after the other, of the reflector with most of them",
};
const UNDECODABLE: Metric = Metric {
    name: "kubecache_reflector_undecodable_total",
    help: "Total number of items and events that were set aside because they do not decode",
};

const LIST_SECONDS: [f64; 12] = [
    0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0,
];
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
            list_duration: LIST_DURATION.histogram(&labels, &LIST_SECONDS)?,
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
        show(
            page,
            [
                &self.lists,
                &self.watches,
                &self.short_watches,
                &self.undecodable,
            ],
        );
        show(
            page,
            [
                &self.list_duration,
                &self.items_per_list,
                &self.watch_duration,
                &self.items_per_watch,
            ],
        );
        let states = self.readings.states();
        let statuses = states.iter().map(|(status, _)| status);
        let versions = statuses
            .clone()
            .map(|status| status.resource_version.clone());
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
