//! The exposition over real owners, against the fake source and the fake clock.

mod format;
mod lifecycles;
mod registries;
mod shown;

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};

use crate::clock::{Clock, Deadline, FakeClock};
use crate::informer::{InformerOptions, SharedInformer};
use crate::manager::{ChangeDetection, ManagerOptions, SecretManager};
use crate::metrics::Exposition;
use crate::reflector::{Reflector, ReflectorOptions};
use crate::store::{Indexers, Store};
use crate::sync::Arc;
use crate::testing::{FakeSource, objects};

/// A fake server on a fake clock, and an exposition.
struct Stage {
    fake: FakeClock,
    clock: Clock,
    source: FakeSource<ConfigMap>,
    exposition: Exposition,
}

impl Stage {
    fn new() -> Self {
        let fake = FakeClock::new();
        let clock = Clock::from(fake.clone());
        Self {
            source: FakeSource::with_clock(clock.clone()),
            fake,
            clock,
            exposition: Exposition::new(),
        }
    }

    fn set(&self, name: &str) {
        self.source.set(objects::config_map("shop", name, "", &[]));
    }

    fn options(&self) -> ReflectorOptions {
        ReflectorOptions::exact(self.clock.clone())
    }

    /// A reflector whose watch is open; `watches` are, with it.
    fn reflector(&self, name: &str, watches: usize) -> (Store<ConfigMap>, Reflector) {
        let mut options = self.options();
        options.metrics = Some(self.exposition.reflector::<ConfigMap>(name).unwrap());
        let source = Arc::new(self.source.clone());
        let (store, reflector) = Store::spawn(name, source, Indexers::new(), options).unwrap();
        store.wait_until_synced(Deadline::NEVER).unwrap();
        self.source.wait_for_watches(watches);
        (store, reflector)
    }

    fn informer(&self, name: &str) -> SharedInformer<ConfigMap> {
        let metrics = self.exposition.informer::<ConfigMap>(name).unwrap();
        let options = InformerOptions::default()
            .reflector(self.options())
            .metrics(metrics);
        SharedInformer::new(Arc::new(self.source.clone()), options)
    }

    fn run(&self, informer: &SharedInformer<ConfigMap>) {
        informer.start().unwrap();
        informer.wait_until_synced(Deadline::NEVER).unwrap();
        self.source.wait_for_watches(1);
    }

    fn manager(&self, mode: ChangeDetection) -> (FakeSource<Secret>, SecretManager) {
        let source = FakeSource::with_clock(self.clock.clone());
        let options = ManagerOptions::default()
            .clock(self.clock.clone())
            .change_detection(mode)
            .metrics(self.exposition.manager::<Secret>(mode).unwrap());
        let manager = SecretManager::new(source.clone(), options).unwrap();
        (source, manager)
    }

    /// The value of a series, written as in the text.
    fn value(&self, series: &str) -> Option<String> {
        let text = self.exposition.text();
        text.lines().find_map(|line| {
            let value = line.strip_prefix(series)?;
            value.strip_prefix(' ').map(str::to_owned)
        })
    }

    /// The value of a series of the ConfigMaps' `name`.
    fn of(&self, metric: &str, name: &str) -> Option<String> {
        let labels = format!(r#"{{group="",name="{name}",resource="configmaps",version="v1"}}"#);
        self.value(&format!("{metric}{labels}"))
    }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
