//! The types of metrics, and the page that shows them: the only code that knows the metrics
//! library.

use std::collections::HashMap;

use prometheus::core::{Collector, Desc};
use prometheus::{
    Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts,
    TextEncoder,
};

pub(super) use prometheus::Registry;

use crate::error::{Error, ErrorKind};

/// The buckets of request durations.
pub(super) const SECONDS: [f64; 12] = [
    0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0,
];

/// Labels of one series: names and values.
pub(super) type Labels = HashMap<String, String>;

/// A metric's name and its line of help, which is the same for all its series.
#[derive(Clone, Copy, Debug)]
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
}

/// Declares metrics: the constant of each, its name and its line of help.
macro_rules! metrics {
    ($($constant:ident: $name:literal, $help:literal;)*) => {
        $(const $constant: Metric = Metric { name: $name, help: $help };)*
        /// All of them.
        pub(super) const ALL: &[Metric] = &[$($constant),*];
    };
}
pub(super) use metrics;

impl Metric {
    pub(super) fn counter(self, labels: &Labels) -> Result<IntCounter, Error> {
        IntCounter::with_opts(self.opts(labels)).map_err(|error| self.refused(error))
    }

    /// A counter for each value of more labels.
    pub(super) fn counters(self, labels: &Labels, by: &[&str]) -> Result<IntCounterVec, Error> {
        IntCounterVec::new(self.opts(labels), by).map_err(|error| self.refused(error))
    }

    pub(super) fn histogram(self, labels: &Labels, buckets: &[f64]) -> Result<Histogram, Error> {
        let options = HistogramOpts::from(self.opts(labels)).buckets(buckets.to_vec());
        Histogram::with_opts(options).map_err(|error| self.refused(error))
    }

    /// A histogram for each value of more labels.
    pub(super) fn histograms(
        self,
        labels: &Labels,
        by: &[&str],
        buckets: &[f64],
    ) -> Result<HistogramVec, Error> {
        let options = HistogramOpts::from(self.opts(labels)).buckets(buckets.to_vec());
        HistogramVec::new(options, by).map_err(|error| self.refused(error))
    }

    pub(super) fn int_gauge(self, labels: &Labels) -> Result<IntGauge, Error> {
        IntGauge::with_opts(self.opts(labels)).map_err(|error| self.refused(error))
    }

    /// Shows a present value: a [`number`], or a time in seconds.
    pub(super) fn show(self, page: &Registry, labels: &Labels, value: f64) {
        match Gauge::with_opts(self.opts(labels)) {
            Ok(gauge) => {
                gauge.set(value);
                show(page, [&gauge]);
            }
            Err(error) => log::error!("a metric is left out: {error}"),
        }
    }

    /// The name in a registry, whatever the labels of its series.
    pub(super) fn desc(self) -> Result<Desc, Error> {
        let (name, help) = (self.name.into(), self.help.into());
        let desc = Desc::new(name, help, Vec::new(), Labels::new());
        desc.map_err(|error| self.refused(error))
    }

    fn opts(self, labels: &Labels) -> Opts {
        Opts::new(self.name, self.help).const_labels(labels.clone())
    }

    fn refused(self, error: prometheus::Error) -> Error {
        Error::new(ErrorKind::Config, format!("metric {}", self.name)).with_source(error)
    }
}

/// Shows counts on a page, which is one answer to a scrape.
pub(super) fn show<const N: usize>(
    page: &Registry,
    counted: [&(impl Collector + Clone + 'static); N],
) {
    for counted in counted {
        if let Err(error) = page.register(Box::new(counted.clone())) {
            log::error!("a metric is left out: {error}");
        }
    }
}

/// A page as text, in the order of names and labels.
pub(super) fn text(page: &Registry) -> String {
    let mut text = String::new();
    if let Err(error) = TextEncoder::new().encode_utf8(&page.gather(), &mut text) {
        log::error!("the metrics end early: {error}");
    }
    // The spelling of the format.
    text.replace(" inf\n", " +Inf\n")
}

/// Converts a number for metrics; it is capped above four billion.
pub(super) fn number(number: usize) -> f64 {
    u32::try_from(number).map_or(f64::from(u32::MAX), f64::from)
}
