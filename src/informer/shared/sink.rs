//! The reflector's side of an informer: its queue, and beside it the status and the resyncs.

use crate::error::Error;
use crate::informer::handlers::Processor;
use crate::informer::{DeltaFifoHandle, DeltaFifoStaging, DeltaFifoWriter};
use crate::object::{Object, ResourceVersion};
use crate::reflector::{ReflectorStatus, Replacement, Sink, SinkEvent, Staged};
use crate::store::{Reporter, refusal};
use crate::sync::Arc;

/// What the informer's reflector writes to.
pub(super) struct InformerSink<K: Object> {
    pub(super) writer: DeltaFifoWriter<K>,
    pub(super) handle: DeltaFifoHandle<K>,
    pub(super) processor: Arc<Processor<K>>,
    pub(super) reporter: Reporter<K>,
    /// The server's refusal has become an answer, and the handlers know.
    pub(super) denied: bool,
}

impl<K: Object> Sink<K> for InformerSink<K> {
    type Staging = DeltaFifoStaging<K>;

    fn begin(&mut self) -> DeltaFifoStaging<K> {
        self.writer.begin()
    }

    fn stage(&mut self, staging: &mut DeltaFifoStaging<K>, item: Staged<K>) {
        self.writer.stage(staging, item);
    }

    fn commit(&mut self, staging: DeltaFifoStaging<K>, of: &Replacement) -> Result<(), Error> {
        self.writer.commit(staging, of)?;
        // An empty list queues nothing by which the consumer would notice it.
        self.handle.interrupt();
        Ok(())
    }

    fn apply(&mut self, event: SinkEvent<K>) -> Result<(), Error> {
        self.writer.apply(event)
    }

    fn bookmark(&mut self, version: &ResourceVersion) {
        self.writer.bookmark(version);
    }

    fn resync(&mut self) -> Result<(), Error> {
        if self.processor.resync_is_due() {
            return self.writer.resync();
        }
        Ok(())
    }

    fn report(&mut self, status: &ReflectorStatus) {
        self.reporter.report(status);
        let refusal = refusal(status);
        if self.denied != refusal.is_some() {
            self.denied = refusal.is_some();
            self.processor.deny(refusal);
        }
    }
}
