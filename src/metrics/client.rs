//! The series of clients: their requests, the runs of their credential plugins, and the expiry of
//! their credentials. Names, labels and buckets are client-go's.

use std::time::SystemTime;

use prometheus::{Histogram, HistogramVec, IntCounterVec, Registry};

use super::page::{Labels, Metric, SECONDS, metrics, number, show};
use super::readings::Readings;
use crate::error::Error;
use crate::http::{ClientMetric, ClientState, PluginEnd};

metrics! {
    REQUESTS: "rest_client_requests_total",
        "Number of requests that were sent, by status code, method and host";
    RETRIES: "rest_client_request_retries_total",
        "Number of requests that were sent once more, by their own status code, verb and host";
    DURATION: "rest_client_request_duration_seconds",
        "How long requests took, with waits, retries and reading, by verb and host";
    LIMITED: "rest_client_rate_limiter_duration_seconds",
        "How long requests waited for the client's rate limit, by verb and host";
    RESPONSE_SIZE: "rest_client_response_size_bytes",
        "How large the bodies of answers were, decompressed, by verb and host";
    BODIES: "kubecache_client_body_bytes_total",
        "Bytes of lists, gets and watches that came and were decoded, decompressed, by host";
    SKIPPED: "kubecache_client_skipped_bytes_total",
        "Bytes of them that were passed over, such as those of managed fields, by host";
    CALLS: "rest_client_exec_plugin_call_total",
        "Number of runs of a credential plugin, by exit code and by how it ended";
    POLICY_CALLS: "rest_client_exec_plugin_policy_call_total",
        "Number of decisions whether a credential plugin may run, by status";
    PLUGIN_TTL: "rest_client_exec_plugin_ttl_seconds",
        "Time until the first of the plugins' client certificates expires; inf without any";
    ROTATION: "rest_client_exec_plugin_certificate_rotation_age",
        "How many seconds a plugin's client certificate had been valid when it was replaced";
    CERTIFICATE_TTL: "kubecache_client_certificate_ttl_seconds",
        "Time until the first of the clients' certificates expires; inf without any";
    CREDENTIALS_TTL: "kubecache_client_credentials_ttl_seconds",
        "Time until what the source of credentials gave expires; inf if it names no end";
}

const BYTES: [u32; 11] = [
    64, 256, 512, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216,
];
/// From ten minutes to four years.
const AGE_MINUTES: [u32; 11] = [
    10, 30, 60, 240, 1_440, 10_080, 43_200, 129_600, 259_200, 518_400, 2_073_600,
];

/// One series of each name, for all clients with the same labels.
#[derive(Debug)]
pub(super) struct ClientSeries {
    labels: Labels,
    requests: IntCounterVec,
    retries: IntCounterVec,
    duration: HistogramVec,
    limited: HistogramVec,
    response_size: HistogramVec,
    bodies: IntCounterVec,
    skipped: IntCounterVec,
    calls: IntCounterVec,
    policy_calls: IntCounterVec,
    rotation: Histogram,
    readings: Readings<ClientState>,
}

impl ClientSeries {
    pub(super) fn new(labels: Labels) -> Result<Self, Error> {
        let by = ["verb", "host"];
        let ages = AGE_MINUTES.map(|minutes| f64::from(minutes) * 60.0);
        Ok(Self {
            requests: REQUESTS.counters(&labels, &["code", "method", "host"])?,
            retries: RETRIES.counters(&labels, &["code", "verb", "host"])?,
            duration: DURATION.histograms(&labels, &by, &SECONDS)?,
            limited: LIMITED.histograms(&labels, &by, &SECONDS)?,
            response_size: RESPONSE_SIZE.histograms(&labels, &by, &BYTES.map(f64::from))?,
            bodies: BODIES.counters(&labels, &["host"])?,
            skipped: SKIPPED.counters(&labels, &["host"])?,
            calls: CALLS.counters(&labels, &["code", "call_status"])?,
            policy_calls: POLICY_CALLS.counters(&labels, &["status"])?,
            rotation: ROTATION.histogram(&labels, &ages)?,
            readings: Readings::default(),
            labels,
        })
    }

    pub(super) fn count(&self, metric: &ClientMetric) {
        let observe = |series: &HistogramVec, method: &str, host: &str, value| {
            series.with_label_values(&[method, host]).observe(value);
        };
        match metric {
            ClientMetric::Started(reading) => self.readings.add(reading),
            ClientMetric::RateLimited {
                host,
                method,
                waited,
            } => observe(&self.limited, method, host, waited.as_secs_f64()),
            ClientMetric::RequestSent {
                host,
                method,
                code,
                is_retry,
            } => {
                let code = shown(*code);
                let labels = [&*code, *method, host];
                self.requests.with_label_values(&labels).inc();
                if *is_retry {
                    self.retries.with_label_values(&labels).inc();
                }
            }
            ClientMetric::RequestEnded {
                host,
                method,
                took,
                body_bytes,
            } => {
                observe(&self.duration, method, host, took.as_secs_f64());
                if let Some(bytes) = body_bytes {
                    observe(&self.response_size, method, host, number(*bytes));
                }
            }
            ClientMetric::PluginRun(run) if run.end == PluginEnd::Denied => {
                let denied = run.end.as_str();
                self.policy_calls.with_label_values(&[denied]).inc();
            }
            ClientMetric::BodyDecoded {
                host,
                bytes,
                skipped_bytes,
            } => {
                for (series, count) in [(&self.bodies, bytes), (&self.skipped, skipped_bytes)] {
                    let count = u64::try_from(*count).unwrap_or_default();
                    series.with_label_values(&[&**host]).inc_by(count);
                }
            }
            ClientMetric::PluginRun(run) => {
                self.policy_calls.with_label_values(&["allowed"]).inc();
                let code = run.exit_code.to_string();
                let labels = [&*code, run.end.as_str()];
                self.calls.with_label_values(&labels).inc();
                if let Some(age) = run.replaced_certificate_age {
                    self.rotation.observe(age.as_secs_f64());
                }
            }
        }
    }

    pub(super) fn show(&self, page: &Registry) {
        show(page, [&self.requests, &self.retries, &self.calls]);
        show(page, [&self.policy_calls, &self.bodies, &self.skipped]);
        show(page, [&self.duration, &self.limited, &self.response_size]);
        show(page, [&self.rotation]);
        let states = self.readings.states();
        if states.is_empty() {
            return;
        }
        let now = SystemTime::now();
        let shortest = |ttls: &mut dyn Iterator<Item = f64>| ttls.fold(f64::INFINITY, f64::min);
        let certificates = states.iter().filter_map(|state| state.certificate);
        let of_plugins = certificates.clone().filter(|one| one.is_of_plugin);
        let of_plugins = shortest(&mut of_plugins.map(|one| seconds_until(one.expires, now)));
        PLUGIN_TTL.show(page, &self.labels, of_plugins);
        let of_all = shortest(&mut certificates.map(|one| seconds_until(one.expires, now)));
        CERTIFICATE_TTL.show(page, &self.labels, of_all);
        let credentials = states.iter().filter_map(|state| state.credentials.as_ref());
        let credentials = credentials.filter_map(|credentials| credentials.expires_in);
        let credentials = shortest(&mut credentials.map(|left| left.as_secs_f64()));
        CREDENTIALS_TTL.show(page, &self.labels, credentials);
    }
}

/// A status code as a label. A server can send any number, so only codes of HTTP get their own
/// series.
fn shown(code: Option<u16>) -> String {
    match code {
        None => "<error>".to_owned(),
        Some(
            code @ (100..=103
            | 200..=208
            | 226
            | 300..=308
            | 400..=418
            | 421..=426
            | 428..=429
            | 431
            | 451
            | 500..=511),
        ) => code.to_string(),
        Some(_) => "<other>".to_owned(),
    }
}

/// The time until `then`; negative once it has passed.
fn seconds_until(then: SystemTime, now: SystemTime) -> f64 {
    match then.duration_since(now) {
        Ok(left) => left.as_secs_f64(),
        Err(passed) => -passed.duration().as_secs_f64(),
    }
}
