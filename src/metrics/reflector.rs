//! The series of reflectors: client-go's names (RF-51), and beside them what tells whether a reflector hears anything.

use std::fmt;
use std::time::Duration;

use prometheus::{Histogram, IntCounter, IntGauge};

use super::page::{Labels, Metric, Page, number};
use super::position::show_largest;
use super::readings::Readings;
use crate::error::Error;
use crate::reflector::{ReflectorMetrics, ReflectorReading, ReflectorStatus};
use crate::sync::Arc;

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
    help: "Time since the server last confirmed the content of the reflector that was left alone longest",
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
    readings: Readings<ReflectorReading>,
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
            readings: Readings::new(ReflectorReading::is_over),
            labels,
        })
    }

    pub(super) fn show(&self, page: &Page) {
        page.show(&self.lists);
        page.show(&self.list_duration);
        page.show(&self.items_per_list);
        page.show(&self.watches);
        page.show(&self.short_watches);
        page.show(&self.watch_duration);
        page.show(&self.items_per_watch);
        page.show(&self.undecodable);
        let running: Vec<(Duration, ReflectorStatus)> = self.look();
        let versions: Vec<_> = running
            .iter()
            .map(|(_, status)| &status.resource_version)
            .collect();
        show_largest(&self.last_version, &versions);
        page.show(&self.last_version);
        if let Some(silence) = running.iter().map(|(silence, _)| *silence).max() {
            page.value(SILENCE, &self.labels, silence.as_secs_f64());
        }
        if let Some(failures) = running
            .iter()
            .map(|(_, status)| status.failures.count())
            .max()
        {
            page.value(FAILURES, &self.labels, failures.into());
        }
    }

    fn look(&self) -> Vec<(Duration, ReflectorStatus)> {
        let readings = self.readings.all().into_iter();
        let running = readings.filter_map(|reading| {
            let status = reading.status()?;
            Some((reading.silence(&status), status))
        });
        running.collect()
    }
}

impl ReflectorMetrics for ReflectorSeries {
    fn reflector_started(&self, reading: ReflectorReading) {
        self.readings.add(reading);
    }

    fn list_started(&self) {
        self.lists.inc();
    }

    fn listed(&self, items: usize, took: Duration) {
        self.list_duration.observe(took.as_secs_f64());
        self.items_per_list.observe(number(items));
    }

    fn watch_started(&self) {
        self.watches.inc();
    }

    fn watch_ended(&self, events: usize, lived: Duration) {
        self.watch_duration.observe(lived.as_secs_f64());
        self.items_per_watch.observe(number(events));
    }

    fn short_watch(&self) {
        self.short_watches.inc();
    }

    fn undecodable(&self) {
        self.undecodable.inc();
    }
}

/// The series of an owner of reflectors, and with them those of its reflectors.
#[derive(Debug)]
pub(super) struct OwnerSeries<S> {
    pub(super) own: S,
    pub(super) reflectors: Arc<ReflectorSeries>,
}

impl<S: fmt::Debug + Send + Sync + 'static> ReflectorMetrics for OwnerSeries<S> {
    fn reflector_started(&self, reading: ReflectorReading) {
        self.reflectors.reflector_started(reading);
    }

    fn list_started(&self) {
        self.reflectors.list_started();
    }

    fn listed(&self, items: usize, took: Duration) {
        self.reflectors.listed(items, took);
    }

    fn watch_started(&self) {
        self.reflectors.watch_started();
    }

    fn watch_ended(&self, events: usize, lived: Duration) {
        self.reflectors.watch_ended(events, lived);
    }

    fn short_watch(&self) {
        self.reflectors.short_watch();
    }

    fn undecodable(&self) {
        self.reflectors.undecodable();
    }
}
