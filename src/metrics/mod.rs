//! Metrics of reflectors, informers, managers and clients, as Prometheus text (feature `metrics`).
//!
//! An [`Exposition`] makes hooks. The program gives each to the owner that it measures, and
//! [`Exposition::text`] renders all counts. There is no global registry: a program may have several
//! expositions. Any HTTP server can serve the text, with [`CONTENT_TYPE`]; the feature `endpoints`
//! has one. A program with a `prometheus::Registry` of its own adds the series to that instead, by
//! [`Exposition::register`].
//!
//! ```
//! # #[cfg(feature = "testing")] {
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kubecache::informer::{InformerOptions, SharedInformer};
//! use kubecache::metrics::Exposition;
//! use kubecache::testing::FakeSource;
//!
//! let exposition = Exposition::new();
//! let metrics = exposition.informer::<ConfigMap>("settings")?;
//! let source = Arc::new(FakeSource::<ConfigMap>::new());
//! let informer = SharedInformer::new(source, InformerOptions::default().metrics(metrics));
//! informer.start()?;
//! let deadline = Duration::from_secs(10);
//! informer.wait_until_synced(deadline)?;
//!
//! let labels = r#"{group="",name="settings",resource="configmaps",version="v1"}"#;
//! assert!(exposition.text().contains(&format!("reflector_lists_total{labels} 1")));
//! informer.shutdown(deadline)?;
//! assert_eq!(exposition.text(), ""); // gone with their owner
//! # }
//! # Ok::<(), kubecache::Error>(())
//! ```
//!
//! # Series
//!
//! A series exists while its hook does, which the owner holds until its threads have ended. Owners
//! with the same labels share a series. No label is ever the name or the namespace of an object, so
//! the number of series does not grow with the cluster. Owners count without a lock. A scrape holds
//! none while it reads them, and never uses the network.
//!
//! ## Reflectors
//!
//! Labels `name` (as given to the exposition; `object-cache` for the reflectors of managers),
//! `group`, `version`, `resource`. The first eight names are client-go's, which had only the label
//! `name`. The histograms were summaries there: `_sum` and `_count` are the same, but there is no
//! `quantile`.
//!
//! - `reflector_lists_total` (counter): lists that the reflector asked for, failed ones too. All
//!   pages of one list count once. A streamed list counts, too.
//! - `reflector_list_duration_seconds` (histogram): time from asking for a list until its last item
//!   was decoded, without failed lists.
//! - `reflector_items_per_list` (histogram): items of a list, undecodable ones included.
//! - `reflector_watches_total` (counter): watches that the reflector asked for, failed ones too.
//! - `reflector_short_watches_total` (counter): watches that the server ended within a second,
//!   without an event.
//! - `reflector_watch_duration_seconds` (histogram): how long a watch was open, whichever side
//!   closed it.
//! - `reflector_items_per_watch` (histogram): events and bookmarks of a watch, without those of a
//!   streamed list.
//! - `reflector_last_resource_version` (gauge): the last 15 digits of the last version; 0 before
//!   the first. Of owners that share the series, the largest.
//! - `kubecache_reflector_silence_seconds` (gauge): time since the server last confirmed the
//!   content, or since the start if it never did. Of owners that share the series, the longest.
//! - `kubecache_reflector_consecutive_failures` (gauge): requests that failed in a row. Of owners
//!   that share the series, the most.
//! - `kubecache_reflector_undecodable_total` (counter): items of lists and events that do not
//!   decode.
//!
//! Alert on `kubecache_reflector_silence_seconds`: it normally stays below the time between
//! bookmarks, about a minute, and grows for any kind of failure. Opened watches, blank lines and
//! bytes of an endless event do not reset it. Without bookmarks from the server, it stays below the
//! time-out of a watch (5 to 10 minutes), after which the reflector sends a probe.
//!
//! ## Informers
//!
//! Labels `name`, `group`, `version`, `resource`, as client-go's. The series of its reflector have
//! the same labels. Series of a handler also have the label `handler`: the name from its options,
//! or `unnamed`. Handlers with the same name share a series.
//!
//! - `informer_processing_latency_seconds` (histogram): time from an event, or the last item of a
//!   list, until it is in the store and in the handlers' queues.
//! - `informer_store_resource_version` (gauge): the last 15 digits of the version of the store's
//!   content; 0 before the first.
//! - `kubecache_informer_undecodable_objects` (gauge): objects that the store sets aside at
//!   present, because they are undecodable.
//! - `kubecache_informer_handler_queued_items` (gauge): notifications that wait for the handler.
//! - `kubecache_informer_handler_lag_seconds` (gauge): age of the oldest notification that the
//!   handler has not returned from; 0 if there is none.
//! - `kubecache_informer_handler_panics_total` (counter): notifications that the handler lost to
//!   panics.
//!
//! ## Managers
//!
//! Labels `kind` (`Secret`, `ConfigMap`) and `strategy` ([`ChangeDetection`]). The reflectors of
//! all managers that watch objects of one kind share the series of reflectors with the name
//! `object-cache`.
//!
//! - `kubecache_object_cache_objects` (gauge): objects that registered pods reference.
//! - `kubecache_object_cache_references` (gauge): references of pods. An object that two pods
//!   reference counts twice.
//! - `kubecache_object_cache_watches` (gauge): watches that are open or being opened.
//! - `kubecache_object_cache_polled` (gauge): objects that the poller gets, because there is no
//!   room for their watches.
//! - `kubecache_object_cache_absent` (gauge): objects that the server does not have, by its last
//!   answer.
//! - `kubecache_object_cache_get_duration_seconds` (histogram): how long reads took, failed ones
//!   too: plain, fresh and at-least ones.
//! - `kubecache_object_cache_get_errors_total` (counter): reads that failed. Its label `reason` is
//!   the [`ErrorKind`](crate::ErrorKind), such as `NotFound`.
//!
//! ## Clients
//!
//! Names, other labels and buckets are client-go's. The label `name`, as given to the exposition,
//! is added. `host` is the server's host and port, even if the URL names no port. `verb` and
//! `method` are both the method of the request, such as `GET`. `code` is the status code, and
//! `<other>` for a number that HTTP does not define. It is `<error>` if no answer came, or if there
//! were no credentials to send.
//!
//! - `rest_client_requests_total` (counter): requests that were sent, by `code`, `method` and
//!   `host`. Each retry counts, and the opening of each watch.
//! - `rest_client_request_retries_total` (counter): the repeated requests among them, by the `code`
//!   of the repetition, `verb` and `host`. The client repeats after a 401 and after silence. After
//!   a 429 or 5xx it repeats its gets and the pages of its own lists. Reflectors ask again later,
//!   which does not count as a retry.
//! - `rest_client_request_duration_seconds` (histogram): how long requests took that read a whole
//!   answer, failed ones too: the wait for the rate limit, retries, and reading the body. By `verb`
//!   and `host`. Watches and streams are not measured, as in client-go.
//! - `rest_client_rate_limiter_duration_seconds` (histogram): how long requests waited for the
//!   client's rate limit, including no wait, by `verb` and `host`. Openings of watches do not wait.
//! - `rest_client_response_size_bytes` (histogram): the bodies of the answers to them after
//!   decompression, by `verb` and `host`. Failed requests do not count; client-go's do.
//! - `kubecache_client_body_bytes_total` (counter): bytes of lists, gets and watches that the
//!   client received and decoded, after decompression, by `host`.
//! - `kubecache_client_skipped_bytes_total` (counter): the part of these bytes that the decoder
//!   passed over, by `host`: managed fields and kubectl's last-applied annotation
//!   ([`Trim::Skip`](crate::http::Trim)), and the rest of objects if the request was for metadata
//!   alone. It stays small if the server leaves managed fields out, as Kubernetes 1.38 can.
//! - `rest_client_exec_plugin_call_total` (counter): runs of a credential plugin, by `code`, the
//!   exit code, and `call_status`, such as `no_error` ([`PluginEnd`](crate::http::PluginEnd)).
//! - `rest_client_exec_plugin_policy_call_total` (counter): decisions of the
//!   [`PluginPolicy`](crate::http::PluginPolicy) before a run, by `status`: `allowed` or `denied`.
//!   client-go 0.37 has the name but counts nothing; the label follows a proposed change there. A
//!   kubeconfig that the policy refuses while it is read makes no client, and is not counted.
//! - `rest_client_exec_plugin_ttl_seconds` (gauge): time until the first client certificate of a
//!   plugin expires; negative once it has. Infinite without any.
//! - `rest_client_exec_plugin_certificate_rotation_age` (histogram): the age of a plugin's client
//!   certificate, in seconds since it became valid, when another one replaced it.
//! - `kubecache_client_certificate_ttl_seconds` (gauge): time until the first client certificate of
//!   new connections expires, from kubeconfigs and plugins; negative once it has. Infinite without
//!   any, as the kubelet's `kubelet_certificate_manager_client_ttl_seconds`.
//! - `kubecache_client_credentials_ttl_seconds` (gauge): time until the first credentials of a
//!   plugin or a [`TokenSource`](crate::http::TokenSource) expire; 0 once they have. Infinite if
//!   none has an expiry.
//!
//! The three gauges exist while a client does. client-go's `rest_client_request_size_bytes` is
//! missing, because most requests are gets, which have no body. So are its
//! `rest_client_transport_…`, which belong to a cache of Go programs.
//!
//! # Threads and locks
//!
//! An exposition has no thread. Locks of rank 57 guard the tables of hooks and the readings of each
//! series; no code is called under them.

mod client;
mod informer;
mod manager;
mod page;
mod position;
mod readings;
mod reflector;
mod registry;
mod series_map;
#[cfg(test)]
#[cfg(feature = "testing")]
mod tests;

use client::ClientSeries;
use informer::InformerSeries;
use manager::ManagerSeries;
use page::{Labels, Registry};
use reflector::ReflectorSeries;
use series_map::SeriesMap;

/// The crate of [`Exposition::register`]'s registry, in the version that it takes.
#[doc(no_inline)]
pub use prometheus;
pub use registry::RegisteredExposition;

use crate::error::{Error, debug_of};
use crate::hooks::Hook;
use crate::http::ClientMetric;
use crate::informer::InformerMetric;
use crate::manager::{ChangeDetection, ManagerMetric};
use crate::object::Object;
use crate::reflector::ReflectorMetric;
use crate::sync::Arc;

/// The `Content-Type` of [`Exposition::text`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The label `name` of the managers' reflectors.
const OBJECT_CACHE: &str = "object-cache";

/// Makes metrics for reflectors, informers, managers and clients, and renders their counts ([the
/// module](self) lists all names).
///
/// Cloning copies a pointer. It keeps neither an owner nor a series alive.
#[derive(Clone, Default)]
pub struct Exposition {
    reflectors: Arc<SeriesMap<ReflectorSeries>>,
    informers: Arc<SeriesMap<InformerSeries>>,
    managers: Arc<SeriesMap<ManagerSeries>>,
    clients: Arc<SeriesMap<ClientSeries>>,
}

impl Exposition {
    /// Makes an exposition without series.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the hook that counts for reflectors of `K`, with `name` as a label. Give it to
    /// [`ReflectorOptions::metrics`](crate::reflector::ReflectorOptions::metrics).
    ///
    /// # Errors
    ///
    /// `Config` for an empty name.
    ///
    /// # Examples
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::Pod;
    /// use kubecache::metrics::Exposition;
    /// use kubecache::reflector::ReflectorOptions;
    ///
    /// let exposition = Exposition::new();
    /// let hook = exposition.reflector::<Pod>("pods of this node")?;
    /// let options = ReflectorOptions::default().metrics(hook);
    /// # drop(options);
    /// # Ok::<(), kubecache::Error>(())
    /// ```
    pub fn reflector<K: Object>(&self, name: &str) -> Result<Hook<ReflectorMetric>, Error> {
        let labels = reflector_labels::<K>("reflector", name)?;
        let series = self.reflectors.get_or_make(&labels, ReflectorSeries::new)?;
        Ok(Hook::new(move |metric| series.count(metric)))
    }

    /// Makes the hook that counts for an informer of `K` and its reflector, with `name` as a label.
    /// Give it to [`InformerOptions::metrics`](crate::informer::InformerOptions::metrics).
    ///
    /// # Errors
    ///
    /// `Config` for an empty name: `informer name cannot be empty`.
    pub fn informer<K: Object>(&self, name: &str) -> Result<Hook<InformerMetric>, Error> {
        let labels = reflector_labels::<K>("informer", name)?;
        let reflectors = self.reflectors.get_or_make(&labels, ReflectorSeries::new)?;
        let make = |labels| InformerSeries::new(labels, reflectors);
        let series = self.informers.get_or_make(&labels, make)?;
        Ok(Hook::new(move |metric| series.count(metric)))
    }

    /// Makes the hook that counts for a manager of `K` that learns of changes by `strategy`. Give
    /// it to [`ManagerOptions::metrics`](crate::manager::ManagerOptions::metrics). A manager of
    /// another kind or strategy refuses it when it is made.
    ///
    /// # Errors
    ///
    /// `Config` if the metrics library refuses a series.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(feature = "testing")] {
    /// use k8s_openapi::api::core::v1::Secret;
    /// use kubecache::manager::{ChangeDetection, ManagerOptions, SecretManager};
    /// use kubecache::metrics::Exposition;
    /// use kubecache::testing::FakeSource;
    ///
    /// let exposition = Exposition::new();
    /// let metrics = exposition.manager::<Secret>(ChangeDetection::Watch)?;
    /// let options = ManagerOptions::default().metrics(metrics);
    /// let secrets = SecretManager::new(FakeSource::<Secret>::new(), options)?;
    /// secrets.get("shop", "db").unwrap_err(); // no pod references it
    ///
    /// let errors = "kubecache_object_cache_get_errors_total";
    /// let labels = r#"{kind="Secret",reason="NotRegistered",strategy="Watch"}"#;
    /// assert!(exposition.text().contains(&format!("{errors}{labels} 1\n")));
    /// # }
    /// # Ok::<(), kubecache::Error>(())
    /// ```
    pub fn manager<K: Object>(
        &self,
        strategy: ChangeDetection,
    ) -> Result<Hook<ManagerMetric>, Error> {
        let reflectors = match strategy {
            ChangeDetection::Watch => {
                let labels = reflector_labels::<K>("manager", OBJECT_CACHE)?;
                Some(self.reflectors.get_or_make(&labels, ReflectorSeries::new)?)
            }
            ChangeDetection::Cache | ChangeDetection::Get => None,
        };
        let kind = K::resource().kind_name();
        let labels = labels([("kind", &*kind), ("strategy", strategy.as_str())]);
        let make = |labels| ManagerSeries::new((kind, strategy), labels, reflectors);
        let series = self.managers.get_or_make(&labels, make)?;
        Ok(Hook::fallible(move |metric| series.count(metric)))
    }

    /// Makes the hook that counts for clients, with `name` as a label. Give it to
    /// [`ClientOptions::metrics`](crate::http::ClientOptions::metrics).
    ///
    /// # Errors
    ///
    /// `Config` for an empty name.
    ///
    /// # Examples
    ///
    /// ```
    /// use kubecache::http::ClientOptions;
    /// use kubecache::metrics::Exposition;
    ///
    /// let exposition = Exposition::new();
    /// let options = ClientOptions::default().metrics(exposition.client("agent")?);
    /// # drop(options);
    /// # Ok::<(), kubecache::Error>(())
    /// ```
    pub fn client(&self, name: &str) -> Result<Hook<ClientMetric>, Error> {
        if name.is_empty() {
            return Err(Error::config("client name cannot be empty"));
        }
        let labels = labels([("name", name)]);
        let series = self.clients.get_or_make(&labels, ClientSeries::new)?;
        Ok(Hook::new(move |metric| series.count(metric)))
    }

    /// Renders all series in the text format of Prometheus, version 0.0.4, sorted by name and
    /// labels.
    ///
    /// Any thread may call it. It reads the state of each owner, and never waits for the network or
    /// for a handler.
    pub fn text(&self) -> String {
        page::text(&self.page())
    }

    /// The present counts of all series.
    fn page(&self) -> Registry {
        let page = Registry::new();
        self.reflectors.each(|series| series.show(&page));
        self.informers.each(|series| series.show(&page));
        self.managers.each(|series| series.show(&page));
        self.clients.each(|series| series.show(&page));
        page
    }
}

debug_of!([] Exposition, |_it| ..);

/// The labels of a reflector of `K`.
fn reflector_labels<K: Object>(owner: &str, name: &str) -> Result<Labels, Error> {
    if name.is_empty() {
        let text = format!("{owner} name cannot be empty");
        return Err(Error::config(text));
    }
    let resource = K::resource();
    Ok(labels([
        ("name", name),
        ("group", resource.group()),
        ("version", resource.version()),
        ("resource", resource.plural()),
    ]))
}

fn labels<const N: usize>(labels: [(&str, &str); N]) -> Labels {
    Labels::from(labels.map(|(name, value)| (name.to_owned(), value.to_owned())))
}
