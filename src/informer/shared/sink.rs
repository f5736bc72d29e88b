//! The reflector's side of an informer: its queue, and beside it the status and the resyncs.

use crate::error::Error;
use crate::informer::handlers::Processor;
use crate::informer::spent::Spent;
use crate::informer::{DeltaFifoStaging, DeltaFifoWriter};
use crate::list_watch::{Backlog, ObjectEvent};
use crate::object::{Object, ResourceVersion};
use crate::reflector::{ReflectorStatus, Replacement, Sink};
use crate::store::{Floor, Reporter, refusal};
use crate::sync::Arc;

/// What the informer's reflector writes to.
pub(super) struct InformerSink<K: Object> {
    pub(super) writer: DeltaFifoWriter<K>,
    pub(super) processor: Arc<Processor<K>>,
    pub(super) reporter: Reporter<K>,
    /// What the store will know once everything that is queued is applied: what a list is judged by, so that the reflector
    /// hears of one that is too old and asks for the most recent (B4).
    pub(super) floor: Floor,
    /// A list comes object by object: a bookmark behind it says where the content then is.
    pub(super) marks_lists: bool,
    /// The server's refusal has become an answer, and the handlers know.
    pub(super) denied: bool,
    pub(super) spent: Arc<Spent<K>>,
}

impl<K: Object> Sink<K> for InformerSink<K> {
    type Staging = DeltaFifoStaging<K>;

    fn begin(&mut self) -> DeltaFifoStaging<K> {
        self.writer.begin()
    }

    fn stage(&mut self, staging: &mut DeltaFifoStaging<K>, event: ObjectEvent<K>) {
        self.writer.stage(staging, event);
    }

    fn commit(&mut self, staging: DeltaFifoStaging<K>, of: &Replacement) -> Result<(), Error> {
        let mut floor = self.floor.clone();
        if !floor.admits_replacement(of) {
            self.reporter.count_refusal();
            return Err(floor.stale(of));
        }
        self.writer.commit(staging, of)?;
        self.floor = floor;
        if self.marks_lists {
            self.writer.bookmark(&of.resource_version);
        }
        Ok(())
    }

    fn apply(&mut self, event: ObjectEvent<K>) -> Result<(), Error> {
        let version = event.object.resource_version();
        self.writer.apply(event)?;
        self.floor.raise(&version);
        Ok(())
    }

    fn bookmark(&mut self, version: &ResourceVersion) {
        // Where one goes back, the store takes it for a list's.
        if version.is_older_than(self.floor.position()) {
            return;
        }
        self.writer.bookmark(version);
        self.floor.raise(version);
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

    fn backlog(&mut self, backlog: Backlog) {
        match backlog {
            Backlog::Event | Backlog::Bytes => self.spent.free(),
            Backlog::Unknown => self.spent.rest(),
        }
    }
}

impl<K: Object> Drop for InformerSink<K> {
    fn drop(&mut self) {
        self.spent.rest();
    }
}
