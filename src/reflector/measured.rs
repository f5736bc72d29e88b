//! The counts of one run of a reflector, for its metrics hook.

use std::time::Instant;

use crate::clock::Clock;
use crate::error::Error;
use crate::hooks::{Hook, Telemetry};
use crate::reflector::core::VERY_SHORT;
use crate::reflector::{ReflectorMetric, ReflectorStatus};
use crate::sync::{Arc, Mutex};

/// The counts of one run.
pub(super) struct Measured {
    telemetry: Telemetry<ReflectorMetric, (ReflectorStatus, Instant)>,
    clock: Clock,
    /// When the running list began, and how many of its items have come.
    list: Option<(Instant, usize)>,
    watch: Option<(Instant, usize)>,
    /// Whether the server ended the watch.
    pub(super) at_its_end: bool,
}

impl Measured {
    /// # Errors
    ///
    /// `Panicked` if the hook does.
    pub(super) fn start(
        hook: Option<Hook<ReflectorMetric>>,
        reflector: &str,
        status: &Arc<Mutex<ReflectorStatus>>,
        clock: &Clock,
    ) -> Result<Self, Error> {
        let (status, now) = (Arc::clone(status), clock.clone());
        let look = move || (status.lock().clone(), now.now());
        let owner = format!("reflector {reflector}");
        Ok(Self {
            telemetry: Telemetry::start(hook, &owner, clock, look, ReflectorMetric::Started)?,
            clock: clock.clone(),
            list: None,
            watch: None,
            at_its_end: false,
        })
    }

    pub(super) fn list_begins(&mut self) {
        self.telemetry.tell(|| ReflectorMetric::ListStarted);
        self.list = self.begun();
    }

    pub(super) fn listed(&mut self, undecodable: bool) {
        self.came(undecodable, |measured| &mut measured.list);
    }

    /// Notes that the last item has come. A second call does nothing.
    pub(super) fn list_is_complete(&mut self) {
        if let Some((since, items)) = self.list.take() {
            let took = self.clock.now().saturating_duration_since(since);
            self.telemetry
                .tell(|| ReflectorMetric::Listed { items, took });
        }
    }

    pub(super) fn watch_begins(&mut self, streams_a_list: bool) {
        self.at_its_end = false;
        if streams_a_list {
            self.list_begins();
        }
        self.telemetry.tell(|| ReflectorMetric::WatchStarted);
    }

    pub(super) fn watch_is_open(&mut self) {
        self.watch = self.begun();
    }

    /// Notes that an event or a bookmark of the watch reaches the sink (RF-43).
    pub(super) fn applied(&mut self, undecodable: bool) {
        self.came(undecodable, |measured| &mut measured.watch);
    }

    /// Notes that the server or the reflector closed the watch.
    pub(super) fn watch_over(&mut self) {
        let Some((since, events)) = self.watch.take() else {
            return;
        };
        let lived = self.clock.now().saturating_duration_since(since);
        // A streamed list that still runs, or failed, is not a watch without items.
        let without_items = events == 0 && self.list.is_none_or(|(_, items)| items == 0);
        if self.at_its_end && without_items && lived < VERY_SHORT {
            self.telemetry.tell(|| ReflectorMetric::ShortWatch);
        }
        self.telemetry
            .tell(|| ReflectorMetric::WatchEnded { events, lived });
    }

    fn begun(&self) -> Option<(Instant, usize)> {
        self.telemetry.has_hook().then(|| (self.clock.now(), 0))
    }

    fn came(&mut self, undecodable: bool, of: fn(&mut Self) -> &mut Option<(Instant, usize)>) {
        if let Some((_, items)) = of(self) {
            *items = items.saturating_add(1);
        }
        if undecodable {
            self.telemetry.tell(|| ReflectorMetric::Undecodable);
        }
    }
}
