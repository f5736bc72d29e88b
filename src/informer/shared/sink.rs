//! The reflector's side of an informer: each event goes to the store, then to the handlers.

use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::hooks::{Hook, Telemetry};
use crate::informer::handlers::Processor;
use crate::informer::{Deleted, InformerMetric, InformerState, Notification};
use crate::list_watch::{Backlog, EventKind, Listed, ObjectEvent};
use crate::object::{Object, ResourceVersion, StoredObject, Transform};
use crate::reflector::{Phase, ReflectorStatus, Replacement, Sink};
use crate::store::{Applied, Change, Staging, Store, StoreWriter};
use crate::sync::Arc;

/// The sink of the informer's reflector, on the reflector's thread.
///
/// Each event first changes the store, and then the handlers get that change. So the store is never
/// behind the handlers (SI-20), and decides what is new to them (CT-4).
pub(crate) struct InformerSink<K: Object> {
    store: Store<K>,
    writer: StoreWriter<K>,
    processor: Arc<Processor<K>>,
    transform: Option<Transform<K>>,
    /// Why the staged list cannot be committed (SI-26).
    failed: Option<Error>,
    /// `None` before the start.
    telemetry: Option<Telemetry<InformerMetric, InformerState>>,
    /// The handlers have got the first list.
    is_complete: bool,
    /// The server's refusal has become an answer, and the handlers know.
    is_denied: bool,
    /// The cause, if the run ends without a stop.
    cause: Option<Error>,
}

impl<K: Object> InformerSink<K> {
    pub(super) fn new(
        store: Store<K>,
        writer: StoreWriter<K>,
        processor: &Arc<Processor<K>>,
        transform: Option<Transform<K>>,
    ) -> Self {
        Self {
            store,
            writer,
            processor: Arc::clone(processor),
            transform,
            failed: None,
            telemetry: None,
            is_complete: false,
            is_denied: false,
            cause: None,
        }
    }

    /// Reports the start of the informer to `hook`.
    ///
    /// # Errors
    ///
    /// `Panicked` if the hook panics.
    pub(super) fn announce(
        &mut self,
        hook: Option<Hook<InformerMetric>>,
        informer: &str,
        clock: &Clock,
    ) -> Result<(), Error> {
        let (store, processor) = (self.store.clone(), Arc::downgrade(&self.processor));
        let look = move || {
            let processor = processor.upgrade();
            InformerState {
                resource_version: store.resource_version(),
                undecodable: store.undecodable().len(),
                handlers: processor.map_or_else(Vec::new, |processor| processor.registrations()),
            }
        };
        let owner = format!("informer {informer}");
        let telemetry = Telemetry::start(hook, &owner, clock, look, InformerMetric::Started)?;
        self.telemetry = Some(telemetry);
        Ok(())
    }

    /// Tells the handlers of a change.
    fn notify(
        &self,
        change: Change<K>,
        last: Option<Arc<StoredObject<K>>>,
        tell: &dyn Fn(Notification<K>),
    ) {
        tell(match change {
            Change::Appeared(object) => Notification::added(object, !self.is_complete),
            Change::Changed { old, new } => Notification::Updated { old, new },
            Change::Remade { old, new } => {
                tell(Notification::Deleted(Deleted::missed(old)));
                Notification::added(new, false)
            }
            // The server's final state may belong to another object of that name, unknown to
            // handlers.
            Change::Gone(last_known) => match last {
                Some(object) if object.uid() == last_known.uid() => {
                    self.processor.reclaimer.release(last_known);
                    Notification::Deleted(Deleted::seen(object))
                }
                Some(_) | None => Notification::Deleted(Deleted::missed(last_known)),
            },
        });
    }

    /// Calls `act` in a turn of the handlers, and reports its duration to the informer's metrics.
    fn turn<T>(&mut self, act: impl FnOnce(&mut Self, &dyn Fn(Notification<K>)) -> T) -> T {
        let telemetry = self.telemetry.take();
        let processor = Arc::clone(&self.processor);
        let turn = || processor.turn(|tell| act(self, tell));
        let done = match &telemetry {
            Some(telemetry) => telemetry.time(turn, |took, _| InformerMetric::Processed(took)),
            None => turn(),
        };
        self.telemetry = telemetry;
        done
    }
}

impl<K: Object> Sink<K> for InformerSink<K> {
    type Staging = Staging<K>;

    fn begin(&mut self) -> Staging<K> {
        self.failed = None;
        self.writer.begin()
    }

    fn stage(&mut self, staging: &mut Staging<K>, event: ObjectEvent<K>) {
        let ObjectEvent { kind, mut object } = event;
        // Deletions and objects from the store are not transformed; the latter were already.
        if kind != EventKind::Deleted && self.transform.is_some() {
            let unchanged = self.writer.unchanged(&object).map(Listed::Object);
            let transform = self.transform.as_ref();
            object = match unchanged.map_or_else(|| object.transformed(transform), Ok) {
                Ok(object) => object,
                Err(error) => {
                    self.failed.get_or_insert(error);
                    return;
                }
            };
        }
        self.writer.stage(staging, ObjectEvent { kind, object });
    }

    fn commit(&mut self, staging: Staging<K>, of: &Replacement) -> Result<(), Error> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.turn(|sink, tell| {
            for change in sink.writer.commit_and_tell(staging, of)? {
                sink.notify(change, None, tell);
            }
            if !sink.is_complete {
                sink.is_complete = true;
                // The informer first: no handler counts as synced before it.
                sink.processor.complete_initial();
            }
            Ok(())
        })
    }

    fn apply(&mut self, event: ObjectEvent<K>) -> Result<(), Error> {
        let ObjectEvent { kind, object } = event;
        let object = object.transformed(self.transform.as_ref())?;
        let last = match kind {
            EventKind::Deleted => object.decoded().map(Arc::clone),
            EventKind::Added | EventKind::Updated => None,
        };
        let event = ObjectEvent { kind, object };
        self.turn(|sink, tell| {
            if let Applied::Accepted(Some(change)) = sink.writer.apply_and_tell(event) {
                sink.notify(change, last, tell);
            }
        });
        Ok(())
    }

    fn bound(&mut self, objects_max: usize) {
        self.writer.bound(objects_max);
    }

    fn left_out(&self) -> usize {
        self.writer.left_out()
    }

    fn bookmark(&mut self, version: &ResourceVersion) {
        self.writer.bookmark(version);
    }

    fn resync(&mut self) -> Result<(), Error> {
        if self.processor.resync_is_due() {
            self.turn(|sink, tell| {
                for object in sink.store.list() {
                    let old = Arc::clone(&object);
                    tell(Notification::Updated { old, new: object });
                }
            });
        }
        Ok(())
    }

    fn report(&mut self, status: &ReflectorStatus) {
        self.writer.report(status);
        let refusal = status.refusal.as_ref();
        if self.is_denied != refusal.is_some() {
            self.is_denied = refusal.is_some();
            self.processor.deny(refusal);
        }
        let failed = status.failures.last();
        let panicked = failed.filter(|error| error.kind() == ErrorKind::Panicked);
        if status.phase == Phase::Stopped {
            self.cause = panicked.cloned();
        }
    }

    fn backlog(&mut self, backlog: Backlog) {
        self.processor.set_burst(backlog != Backlog::Unknown);
        match backlog {
            Backlog::Event | Backlog::Bytes => self.processor.reclaimer.reclaim(),
            Backlog::Unknown => self.processor.reclaimer.pause(),
        }
    }
}

/// A run that ends by a panic ends the informer. The informer itself causes any other end.
impl<K: Object> Drop for InformerSink<K> {
    fn drop(&mut self) {
        self.processor.set_burst(false);
        self.processor.reclaimer.pause();
        if let Some(cause) = self.cause.take() {
            self.store.end(Some(cause));
            self.processor.end();
        }
    }
}
