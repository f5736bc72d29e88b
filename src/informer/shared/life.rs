//! Where an informer is between its making and its end, and who owns its threads there.

use super::consumer::Consumer;
use super::sink::InformerSink;
use crate::error::{Error, ErrorKind};
use crate::list_watch::ListerWatcher;
use crate::object::Object;
use crate::reflector::{Reflector, ReflectorOptions};
use crate::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use crate::worker::Worker;

/// Informers started in this process, for the names of their threads.
static STARTED: AtomicU64 = AtomicU64::new(1);

pub(super) enum Life<K: Object> {
    /// It was not started.
    Ready(Box<Parts<K>>),
    /// Somebody starts it or stops it, which takes a moment.
    Busy,
    Running(Threads),
    /// It was told to stop, and nobody has waited for its threads.
    Stopped(Threads),
    /// Somebody waits for its threads.
    Joining,
    /// Its threads have ended.
    Over,
}

/// What an informer is started from.
pub(super) struct Parts<K: Object> {
    pub(super) source: Arc<dyn ListerWatcher<K>>,
    pub(super) sink: InformerSink<K>,
    pub(super) consumer: Consumer<K>,
    pub(super) options: ReflectorOptions,
}

/// A running informer's threads; dropping them stops and joins, the reflector first (SI-5).
pub(super) struct Threads {
    reflector: Reflector,
    queue: Worker,
}

impl<K: Object> Parts<K> {
    pub(super) fn start(self, name: &str) -> Result<Threads, Error> {
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let consumer = self.consumer;
        consumer.announce();
        let queue = Worker::spawn(format!("inf-{number}"), move |stop| consumer.run(stop));
        let queue = queue.map_err(|error| {
            let text = format!("no thread for informer {name}");
            Error::new(ErrorKind::Resources, text).with_source(error)
        })?;
        // The queue's thread waits for what closes when the sink is dropped: also if there is no second thread.
        let reflector = Reflector::spawn(name, self.source, self.sink, self.options)?;
        Ok(Threads { reflector, queue })
    }
}

impl Threads {
    /// Asks both threads to end; returns at once. The queue is to be closed after this.
    pub(super) fn stop(&self) {
        self.reflector.stop();
        self.queue.stop();
    }
}

impl<K: Object> Life<K> {
    /// Why it cannot be started.
    pub(super) fn refusal(&self) -> Error {
        match self {
            Self::Ready(_) | Self::Busy | Self::Running(_) => {
                Error::new(ErrorKind::Config, "informer has already started")
            }
            Self::Stopped(_) | Self::Joining | Self::Over => Error::new(
                ErrorKind::Stopped,
                "informer was not started because it has stopped already",
            ),
        }
    }
}
