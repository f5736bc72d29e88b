//! The series of an exposition in a registry of the program's own.

use prometheus::Registry;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;

use super::{Exposition, client, informer, manager, reflector};
use crate::error::{Error, debug_of};

impl Exposition {
    /// Adds all series to a registry of the program, until the returned value is dropped. The
    /// registry's own rules hold for them, such as its prefix and its labels.
    ///
    /// Each gathering reads the state of the owners, as [`text`](Self::text) does, in the thread
    /// that gathers.
    ///
    /// # Errors
    ///
    /// `Config` if the registry has another metric of one of [the names](super); the error names
    /// it. Another exposition has them all. The registry then stays as it was.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(feature = "testing")] {
    /// use std::sync::Arc;
    ///
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kubecache::informer::{InformerOptions, SharedInformer};
    /// use kubecache::metrics::Exposition;
    /// use kubecache::metrics::prometheus::{IntCounter, Registry, TextEncoder};
    /// use kubecache::testing::FakeSource;
    ///
    /// let registry = Registry::new();
    /// let syncs = IntCounter::new("my_syncs_total", "Syncs of my program").unwrap();
    /// registry.register(Box::new(syncs.clone())).unwrap();
    /// let exposition = Exposition::new();
    /// let registered = exposition.register(&registry)?;
    ///
    /// let options = InformerOptions::default().metrics(exposition.informer::<ConfigMap>("maps")?);
    /// let informer = SharedInformer::new(Arc::new(FakeSource::<ConfigMap>::new()), options);
    /// let text = || TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    /// assert!(text().contains("my_syncs_total 0"));
    /// assert!(text().contains("informer_processing_latency_seconds_count{"));
    ///
    /// drop(registered);
    /// assert!(!text().contains("informer_"));
    /// # drop(informer);
    /// # }
    /// # Ok::<(), kubecache::Error>(())
    /// ```
    pub fn register(&self, registry: &Registry) -> Result<RegisteredExposition, Error> {
        let mut registered = RegisteredExposition {
            registry: registry.clone(),
            names: Vec::new(),
        };
        for metric in [reflector::ALL, informer::ALL, manager::ALL, client::ALL].concat() {
            // One of the names brings the series of all.
            let shown = registered.names.is_empty().then(|| self.clone());
            let desc = metric.desc()?;
            let name = NameInRegistry { desc, shown };
            let added = registry.register(Box::new(name.clone()));
            added.map_err(|error| {
                let why = "the registry has another one of that name";
                let text = format!("registering metric {}: {why}", metric.name);
                Error::config(text).with_source(error)
            })?;
            registered.names.push(name);
        }
        Ok(registered)
    }
}

/// An exposition in a registry. Dropping it removes the series from the registry.
#[must_use = "dropping it removes the series from the registry"]
pub struct RegisteredExposition {
    registry: Registry,
    names: Vec<NameInRegistry>,
}

debug_of!([] RegisteredExposition, |it| names: it.names.len(), ..);

impl Drop for RegisteredExposition {
    fn drop(&mut self) {
        for name in self.names.drain(..) {
            if let Err(error) = self.registry.unregister(Box::new(name)) {
                log::warn!("a metric stays in its registry: {error}");
            }
        }
    }
}

/// The claim to one name in a registry, so that a clash is an error of that name.
#[derive(Clone)]
struct NameInRegistry {
    desc: Desc,
    /// Of one name: the exposition whose series it brings.
    shown: Option<Exposition>,
}

impl Collector for NameInRegistry {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let page = self.shown.as_ref().map(Exposition::page);
        page.map(|page| page.gather()).unwrap_or_default()
    }
}
