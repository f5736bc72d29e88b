//! The informer's queue thread: takes deltas, has them applied and told, lets handlers join in between.

use super::applying::Applying;
use crate::clock::Deadline;
use crate::error::Error;
use crate::informer::handlers::Processor;
use crate::informer::metrics::Measured;
use crate::informer::{DeltaFifo, DeltaFifoHandle};
use crate::object::Object;
use crate::sync::Arc;
use crate::worker::StopToken;

/// The consumer of the informer's queue. Its end, by a panic too, ends the handlers.
pub(super) struct Consumer<K: Object> {
    queue: DeltaFifo<K>,
    handle: DeltaFifoHandle<K>,
    applying: Applying<K>,
    processor: Arc<Processor<K>>,
    /// The handlers know that no more of the initial list comes.
    complete: bool,
    measured: Option<Measured<K>>,
}

impl<K: Object> Consumer<K> {
    pub(super) fn new(
        queue: DeltaFifo<K>,
        applying: Applying<K>,
        processor: Arc<Processor<K>>,
        measured: Option<Measured<K>>,
    ) -> Self {
        Self {
            handle: queue.handle(),
            queue,
            applying,
            processor,
            complete: false,
            measured,
        }
    }

    /// Tells whoever measures the informer that it starts.
    pub(super) fn announce(&self, informer: &str) -> Result<(), Error> {
        match &self.measured {
            Some(measured) => measured.announce(informer),
            None => Ok(()),
        }
    }

    /// Runs until the stop, or until the queue is closed and empty.
    pub(super) fn run(&mut self, stop: &StopToken) {
        while !stop.is_stopped() {
            self.applying.admit();
            match self.queue.pop_unless_interrupted(Deadline::NEVER) {
                Ok(Some(popped)) if !stop.is_stopped() => {
                    let is_in_initial_list = popped.is_in_initial_list();
                    let (deltas, processing) = popped.into_parts();
                    let begun = self.measured.as_ref().map(Measured::begin);
                    self.applying.apply(deltas, is_in_initial_list);
                    drop(processing);
                    if let (Some(measured), Some(begun)) = (&self.measured, begun) {
                        measured.processed(begun);
                    }
                }
                Ok(_) => {}
                Err(_closed) => return,
            }
            self.look_around();
        }
    }

    /// What follows from how far the queue is.
    fn look_around(&mut self) {
        self.applying.look_at(|| !self.handle.is_empty());
        if !self.complete && self.handle.has_synced() && self.applying.has_synced() {
            self.complete = true;
            // First the informer, then its handlers: one that has synced is not ahead of it (SI-16).
            self.processor.complete_initial();
        }
    }
}

impl<K: Object> Drop for Consumer<K> {
    fn drop(&mut self) {
        self.processor.end();
    }
}
