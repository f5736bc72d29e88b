//! Reflectors: each lists, watches, and keeps a sink equal to the server, on one thread of its own.

pub(crate) mod core;
pub(crate) mod driver;
mod error_hook;
pub(crate) mod guarded;
mod measured;
mod metrics;
mod options;
mod sink;
mod status;
#[cfg(test)]
#[cfg(feature = "testing")]
mod tests;
mod waiters;

pub use crate::policy::BackoffOptions;
pub(crate) use crate::policy::{FORBIDDEN_GRACE, asked_wait};
pub use error_hook::FailedAttempt;
pub use metrics::ReflectorMetric;
pub use options::ReflectorOptions;
pub use sink::{Replacement, Sink};
pub use status::{Phase, ReflectorStatus};
pub use waiters::{WaiterGuard, Waiters};

use crossbeam_channel::select;

use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::list_watch::ListerWatcher;
use crate::object::Object;
use crate::sync::{Arc, Mutex, ProcessCounter, Rank, atomic::Ordering};
use crate::worker::{Ending, StopToken, Worker};

use driver::ReflectorDriver;
use guarded::Guarded;

/// Reflectors started in this process, for the names of their threads.
static STARTED: ProcessCounter = ProcessCounter::new(1);

/// A running reflector, which keeps a sink equal to the server. Dropping it stops and joins its
/// thread.
///
/// It makes one request at a time, and waits between two unless data came. These requests need no
/// wait:
///
/// - A watch after one that lived five seconds or more.
/// - Once per list, a different request that an answer calls for: a list or stream at the most
///   recent version, a full list after pages that expired, or a plain list after a stream.
/// - The page after an empty one that announces more pages, five times in a row at most.
///
/// After a watch that was silent from its opening to its end, the reflector first lists one item.
/// The version of that list shows whether the watch missed something.
///
/// It runs until it is stopped, whatever the server does. If the source panics, the call fails with
/// `Panicked` and the reflector backs off. A sink that panics ends it. The sink holds only objects
/// that were on the server, and in time becomes equal to the server. How soon depends on the
/// server; [`status`](Self::status) shows the progress.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "testing")] {
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use k8s_openapi::api::core::v1::Secret;
/// use kubecache::clock::Clock;
/// use kubecache::reflector::{Reflector, ReflectorOptions};
/// use kubecache::store::{Indexers, Store};
/// use kubecache::testing::{FakeSource, objects};
///
/// let source = FakeSource::<Secret>::new();
/// source.set(objects::secret("shop", "db", "", &[("password", "made-up")]));
///
/// let (store, writer) = Store::new(Indexers::new(), Clock::system());
/// let options = ReflectorOptions::default().waiters(store.waiters());
/// let reflector = Reflector::spawn("secrets", Arc::new(source), writer, options)?;
///
/// store.wait_until_synced(Duration::from_secs(60))?;
/// assert!(store.get("shop", "db")?.is_some());
/// reflector.join().expect("it did not panic");
/// # }
/// # Ok::<(), kubecache::Error>(())
/// ```
#[derive(Debug)]
pub struct Reflector {
    worker: Worker,
    status: Arc<Mutex<ReflectorStatus>>,
    clock: Clock,
}

impl Reflector {
    /// Starts a reflector that keeps `sink` equal to what `source` lists, until it is stopped or
    /// dropped.
    ///
    /// `name`, such as `object-"shop"/"db"`, appears in log lines. Returns at once; only the
    /// reflector's own thread uses the network.
    ///
    /// # Errors
    ///
    /// The error of the source's [`check`](ListerWatcher::check), such as `Config`. `Resources`
    /// when the system refuses a thread. `Panicked` when the metrics hook or the source panicked.
    pub fn spawn<K: Object, S: Sink<K>>(
        name: impl Into<String>,
        source: Arc<dyn ListerWatcher<K>>,
        sink: S,
        options: ReflectorOptions,
    ) -> Result<Self, Error> {
        let name = name.into();
        let clock = options.clock.clone();
        let status = Mutex::ranked(Rank::REFLECTOR_STATUS, ReflectorStatus::default());
        let status = Arc::new(status);
        let source = Arc::new(Guarded::new(&name, source)?);
        let shown = Arc::clone(&status);
        // Not on the thread's stack, where each frame that passes it on would hold another copy.
        let start_after = options.start_after.clone();
        let mut driver = Box::new(ReflectorDriver::new(name, source, sink, options, shown)?);
        let body = move |stop: &StopToken| {
            for other in start_after {
                // Either may be ready: a stop comes before all else.
                select! {
                    recv(other) -> _ => {}
                    recv(stop.channel()) -> _ => {}
                }
            }
            driver.run(stop);
        };
        let worker = Worker::spawn(thread_name(K::resource().kind()), body)
            .map_err(Error::no_thread("a reflector"))?;
        Ok(Self {
            worker,
            status,
            clock,
        })
    }

    /// Returns the reflector's present phase and its results so far. Never blocks on the network.
    ///
    /// The sink gets a change before the status does: right after a store has filled, `synced` may
    /// still be false here.
    pub fn status(&self) -> ReflectorStatus {
        self.status.lock().clone()
    }

    /// Whether the server keeps confirming the content, for a health check. Never blocks.
    ///
    /// It fails ten seconds after the first of several failures in a row, until a watch serves. It
    /// fails within the idle limit when the server is silent ([`ReflectorStatus::health`] has the
    /// rules). It does not fail when the server only has no news, or when the reflector was
    /// stopped.
    ///
    /// # Errors
    ///
    /// As [`ReflectorStatus::health`].
    pub fn health(&self) -> Result<(), Error> {
        self.status.lock().health(self.clock.now())
    }

    /// Asks the reflector to end; returns at once.
    pub fn stop(&self) {
        self.worker.stop();
    }

    /// Whether its thread has ended.
    pub fn is_finished(&self) -> bool {
        self.worker.is_finished()
    }

    pub(crate) fn thread_name(&self) -> &str {
        self.worker.name()
    }

    pub(crate) fn ending(&self) -> Ending {
        self.worker.ending()
    }

    /// Returns the thread alone, for an owner that waits for several together.
    pub(crate) fn into_worker(self) -> Worker {
        self.worker
    }

    /// Stops the reflector and blocks until its thread has ended: milliseconds, even if it was
    /// blocked.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Panicked`] with the text of the panic that ended its thread, if one did.
    pub fn join(self) -> Result<(), Error> {
        let ended = self.worker.join();
        ended.map_err(|text| Error::new(ErrorKind::Panicked, text))
    }
}

/// `rf-secret-17`: the kind is cut so that the number fits into the 15 bytes that Linux keeps.
fn thread_name(kind: &str) -> String {
    const BYTES_MAX: usize = 15;
    let number = STARTED.fetch_add(1, Ordering::Relaxed).to_string();
    let taken = "rf--".len().saturating_add(number.len());
    let kind = kind.chars().filter(char::is_ascii);
    let kind: String = kind.take(BYTES_MAX.saturating_sub(taken)).collect();
    format!("rf-{}-{number}", kind.to_ascii_lowercase())
}
