//! A reflector, its queue, and a thread with a process function: client-go's low-level controller.

use super::{DeltaFifo, DeltaFifoHandle, DeltaFifoWriter, Deltas};
use crate::clock::{Deadline, IntoDeadline};
use crate::error::{Error, ErrorKind, debug_of};
use crate::list_watch::ListerWatcher;
use crate::object::Object;
use crate::reflector::{Reflector, ReflectorOptions};
use crate::sync::{Arc, ProcessCounter, atomic::Ordering};
use crate::worker::{Wake, Worker};

/// Controllers started in this process, for the names of their threads.
static STARTED: ProcessCounter = ProcessCounter::new(1);

/// A running reflector that fills a queue, and a thread that calls a process function with the
/// queue's entries. Dropping it stops and joins both threads.
///
/// The module's page has a [program](crate::delta_fifo#examples) that builds an informer from it.
pub struct Controller<K: Object> {
    queue: DeltaFifoHandle<K>,
    consumer: Worker,
}

impl<K: Object> Controller<K> {
    /// Starts a reflector of `source` that writes to `queue`, and a thread that calls `process`
    /// with one entry at a time: the deltas of one object, and whether they are part of the initial
    /// list.
    ///
    /// `name` appears in log lines. Returns at once. The queue's waiters replace
    /// [`ReflectorOptions::waiters`]. `process` runs without a lock. While it runs, only lists,
    /// resyncs, and events above the queue's bound wait. If it panics, the controller ends:
    /// [`shutdown`](Self::shutdown) and every wait for a sync return the cause.
    ///
    /// # Errors
    ///
    /// `Resources` when the system refuses a thread; otherwise as [`Reflector::spawn`].
    pub fn spawn(
        name: impl Into<String>,
        source: Arc<dyn ListerWatcher<K>>,
        (mut queue, writer): (DeltaFifo<K>, DeltaFifoWriter<K>),
        options: ReflectorOptions,
        mut process: impl FnMut(Deltas<K>, bool) + Send + 'static,
    ) -> Result<Self, Error> {
        let handle = queue.handle();
        handle.state.lock().ends_with_panic = true;
        let options = options.waiters(handle.waiters());
        let reflector = Reflector::spawn(name, source, writer, options)?;
        let thread = format!("dq-{}", STARTED.fetch_add(1, Ordering::Relaxed));
        let consumer = Worker::spawn(thread, move |stop| {
            // A stop ends the wait for an object.
            let end = queue.handle();
            let wake: Arc<dyn Wake> = Arc::new(move || end.close());
            let _registration = stop.register(&wake);
            while !stop.is_stopped() {
                if let Err(error) = queue.pop(Deadline::NEVER, &mut process) {
                    if error.kind() == ErrorKind::Panicked {
                        log::error!("{error}; its controller ends");
                    }
                    break;
                }
            }
            // The consumer first, so that a write that waits for it ends.
            drop(queue);
            drop(reflector);
        });
        Ok(Self {
            queue: handle,
            consumer: consumer.map_err(Error::no_thread("a controller"))?,
        })
    }

    /// Returns a handle to the queue, to wait for its sync and to inspect it.
    pub fn queue(&self) -> &DeltaFifoHandle<K> {
        &self.queue
    }

    /// Asks both threads to end, and returns at once. Queued entries are dropped.
    pub fn stop(&self) {
        self.consumer.stop();
    }

    /// Whether both threads have ended.
    pub fn is_finished(&self) -> bool {
        self.consumer.is_finished()
    }

    /// Stops the controller and blocks until both threads have ended, at most until `deadline`.
    ///
    /// They end within milliseconds, unless a call of the process function still runs. A program
    /// may call this again with a later deadline.
    ///
    /// # Errors
    ///
    /// `Panicked` when the process function panicked. `Timeout` at the deadline, and at once when
    /// the process function calls this, or waits for the calling thread.
    pub fn shutdown(&self, deadline: impl IntoDeadline) -> Result<(), Error> {
        let deadline = deadline.into_deadline(&self.queue.clock);
        self.stop();
        let end = self.consumer.ending();
        if !matches!(end.wait_until(&self.queue.clock, deadline), Ok(true)) {
            let text = format!(
                "timed out waiting for a controller: thread {} still runs, in its process function",
                end.name()
            );
            return Err(Error::new(ErrorKind::Timeout, text));
        }
        let cause = self.queue.state.lock().cause.clone();
        cause.map_or(Ok(()), Err)
    }
}

debug_of!([K: Object] Controller<K>, |it| queue: it.queue, consumer: it.consumer);
