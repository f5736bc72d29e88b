//! Work queues: keys of objects for a program's own worker threads, with retries.
//!
//! A reconcile loop reads the latest state of an object and acts on it. So it needs keys, not
//! changes: a handler of an informer adds keys, and workers take them.
//!
//! - A key waits once, however often it is added.
//! - Only one worker at a time has a key. A key that is added meanwhile comes again afterwards.
//! - A failed key comes again after a pause of its own, which doubles with each failure.
//! - Keys come in the order in which they began to wait.
//!
//! # Examples
//!
//! A reconcile loop with two workers:
//!
//! ```
//! # #[cfg(feature = "testing")] {
//! # use std::sync::Arc;
//! # use std::time::Duration;
//! # use k8s_openapi::api::core::v1::ConfigMap;
//! # use kubecache::object::{Object as _, ObjectKey};
//! # use kubecache::store::Store;
//! # use kubecache::testing::{FakeSource, objects};
//! # let source = FakeSource::<ConfigMap>::new();
//! # source.set(objects::config_map("shop", "settings", "", &[]));
//! # let source = Arc::new(source);
//! # let (send, reconciled) = std::sync::mpsc::channel();
//! # let reconcile = move |store: &Store<ConfigMap>, key: &ObjectKey| {
//! #     send.send(store.get(key.namespace(), key.name())?.is_some()).expect("the test waits");
//! #     Ok::<_, kubecache::Error>(())
//! # };
//! use kubecache::clock::Deadline;
//! use kubecache::informer::{InformerOptions, SharedInformer};
//! use kubecache::work_queue::{WorkQueue, WorkQueueOptions};
//!
//! let informer = SharedInformer::<ConfigMap>::new(source, InformerOptions::default());
//! let queue = WorkQueue::new(WorkQueueOptions::default());
//! let [added, updated, deleted] = [(); 3].map(|()| queue.clone());
//! let handlers = informer.handlers().on_add(move |object, _| added.add(object.key()));
//! let handlers = handlers.on_update(move |_, new| updated.add(new.key()));
//! informer.add_handler(handlers.on_delete(move |gone| deleted.add(gone.key())))?;
//! informer.start()?;
//! informer.wait_until_synced(Duration::from_secs(60))?;
//! for _ in 0..2 {
//!     let (queue, store) = (queue.clone(), informer.store().clone());
//!     # let reconcile = reconcile.clone();
//!     std::thread::spawn(move || {
//!         while let Ok(item) = queue.get(Deadline::NEVER) {
//!             match reconcile(&store, item.key()) {
//!                 Ok(()) => item.forget(),
//!                 Err(error) => eprintln!("{error}; again in {:?}", item.retry()),
//!             }
//!         }
//!     });
//! }
//! # assert_eq!(reconciled.recv(), Ok(true));
//! queue.shutdown(Duration::from_secs(60))?; // the workers end
//! # }
//! # Ok::<(), kubecache::Error>(())
//! ```

mod options;
#[cfg(all(test, shuttle))]
mod schedules;
mod state;
#[cfg(test)]
mod tests;

pub use options::WorkQueueOptions;

use std::time::Duration;

use crate::clock::{Clock, Deadline, IntoDeadline, later};
use crate::error::{Error, ErrorKind, debug_of};
use crate::object::ObjectKey;
use crate::sync::{Arc, Monitor, Rank, current_thread};

use state::WorkState;

/// Keys that wait for worker threads. Cheap to clone; clones are the same queue.
///
/// The module's page has a [program](crate::work_queue#examples). The queue holds each key at most
/// once as waiting, so the number of keys bounds it. All methods but [`get`](Self::get),
/// [`drain`](Self::drain) and [`shutdown`](Self::shutdown) return at once. Dropping the queue does
/// not end it.
#[doc(alias("workqueue", "RateLimitingInterface", "DelayingInterface"))]
#[derive(Clone)]
pub struct WorkQueue {
    state: Arc<Monitor<WorkState>>,
    clock: Clock,
}

/// A key that one worker has taken. Its drop tells the queue that the work is done.
///
/// A drop while the thread panics counts as a failure, so that the key comes again. Any other drop
/// leaves the count of failures as it is.
#[derive(Debug)]
#[must_use = "the key counts as worked on until this is dropped"]
pub struct WorkItem {
    queue: WorkQueue,
    key: ObjectKey,
}

impl WorkQueue {
    /// Makes an empty queue.
    pub fn new(options: WorkQueueOptions) -> Self {
        let state = WorkState::new(options.retry_first, options.retry_max);
        Self {
            state: Arc::new(Monitor::ranked(Rank::WORK_QUEUE, state)),
            clock: options.clock,
        }
    }

    /// Adds a key. Does nothing if it waits already, or after the end of the queue.
    ///
    /// A key that a worker has comes again when that work is done.
    pub fn add(&self, key: ObjectKey) {
        let now = self.clock.now();
        self.change(|state| {
            // Keys whose time has come go first.
            state.add_due(now);
            state.add(key);
        });
    }

    /// Adds a key once `wait` has passed. Does nothing after the end of the queue.
    ///
    /// If the key already has a time at which it is added, the earlier one counts. Another
    /// [`add`](Self::add) does not cancel that time.
    #[doc(alias = "AddAfter")]
    pub fn add_after(&self, key: ObjectKey, wait: Duration) {
        let due = later(self.clock.now(), wait);
        self.change(|state| state.add_at(key, due));
    }

    /// Blocks until there is a key that no other worker has, at most until `deadline`, and takes
    /// it.
    ///
    /// # Errors
    ///
    /// `Timeout` at the deadline. `Stopped` after the end of the queue, once nothing waits any
    /// more.
    pub fn get(&self, deadline: impl IntoDeadline) -> Result<WorkItem, Error> {
        let deadline = deadline.into_deadline(&self.clock);
        let mut state = self.state.lock();
        loop {
            let now = self.clock.now();
            if let Some(key) = state.take(now, current_thread()) {
                drop(state);
                let queue = self.clone();
                return Ok(WorkItem { queue, key });
            }
            if state.is_over() {
                return Err(Error::stopped("waiting for a key of the work queue"));
            }
            if deadline.has_passed(now) {
                let text = "timed out waiting for a key of the work queue";
                return Err(Error::new(ErrorKind::Timeout, text));
            }
            let due = state.next_due().map_or(Deadline::NEVER, Deadline::at);
            let until = deadline.earlier(due);
            state = self.clock.wait_until(&self.state, state, until);
        }
    }

    /// Returns how many keys wait to be taken. Keys that workers have do not count, nor those whose
    /// time has not come.
    pub fn len(&self) -> usize {
        self.state.lock().ready(self.clock.now())
    }

    /// Whether no key waits to be taken.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends the queue: it takes no further key, and drops those whose time has not come. Workers
    /// still get the waiting keys, and then an error.
    #[doc(alias = "ShutDown")]
    pub fn close(&self) {
        let now = self.clock.now();
        self.change(|state| state.close(now));
    }

    /// Ends the queue at once: also drops the waiting keys. Each [`get`](Self::get) fails.
    pub fn stop(&self) {
        let now = self.clock.now();
        self.change(|state| state.stop(now));
    }

    /// Closes the queue, and blocks until the workers have done all waiting keys, at most until
    /// `deadline`.
    ///
    /// Does not wait for a key that the calling thread took, even if the key was added again. Nor
    /// does it wait for a key of another thread that is within such a call.
    ///
    /// # Errors
    ///
    /// `Timeout` with the number of keys that wait, and those that are worked on.
    #[doc(alias = "ShutDownWithDrain")]
    pub fn drain(&self, deadline: impl IntoDeadline) -> Result<(), Error> {
        self.close();
        self.wait_until_done(deadline.into_deadline(&self.clock))
    }

    /// Stops the queue, and blocks until no worker has a key, at most until `deadline`.
    ///
    /// Does not wait for a key that the calling thread took, nor for one of another thread that is
    /// within such a call.
    ///
    /// # Errors
    ///
    /// `Timeout` with the keys that are worked on.
    pub fn shutdown(&self, deadline: impl IntoDeadline) -> Result<(), Error> {
        self.stop();
        self.wait_until_done(deadline.into_deadline(&self.clock))
    }

    fn wait_until_done(&self, deadline: Deadline) -> Result<(), Error> {
        let thread = current_thread();
        // The waits of other threads may end with this one.
        self.change(|state| state.ending.push(thread));
        let state = self.state.lock();
        let (done, mut state) = self.clock.wait_for(&self.state, state, deadline, |state| {
            state.is_done().then_some(())
        });
        let (waiting, late) = (state.waiting(), state.late());
        let late: Vec<_> = late.iter().map(ToString::to_string).collect();
        state.ending.retain(|ending| *ending != thread);
        drop(state);
        if done.is_some() {
            return Ok(());
        }
        let text = format!(
            "timed out waiting for a work queue: {waiting} keys wait, and {} are worked on: {}",
            late.len(),
            late.join(", ")
        );
        Err(Error::new(ErrorKind::Timeout, text))
    }

    fn change<T>(&self, change: impl FnOnce(&mut WorkState) -> T) -> T {
        let changed = change(&mut self.state.lock());
        self.state.notify_all();
        changed
    }
}

impl WorkItem {
    /// Returns the key.
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// Returns how many times in a row the work on this key has failed.
    #[doc(alias = "NumRequeues")]
    pub fn failures(&self) -> u32 {
        self.queue.state.lock().failures(&self.key)
    }

    /// Ends the work with a success: the key's next failure is its first.
    pub fn forget(self) {
        self.queue.change(|state| state.forget(&self.key));
    }

    /// Ends the work with a failure. The key comes again after a pause, which this returns.
    ///
    /// The first pause is 5 ms; each is twice the one before, at most 1000 seconds
    /// ([`WorkQueueOptions`]). For a wait that a server named, use
    /// [`add_after`](WorkQueue::add_after) instead.
    #[doc(alias = "AddRateLimited")]
    pub fn retry(self) -> Duration {
        self.fail()
    }

    fn fail(&self) -> Duration {
        let now = self.queue.clock.now();
        self.queue.change(|state| {
            let pause = state.failed(&self.key);
            state.add_at(self.key.clone(), later(now, pause));
            pause
        })
    }
}

impl Drop for WorkItem {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.fail();
        }
        self.queue.change(|state| state.done(&self.key));
    }
}

debug_of!([] WorkQueue, |it| len: it.len(), ended: { it.state.lock().is_over() }, ..);
