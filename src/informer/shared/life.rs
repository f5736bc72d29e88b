//! The life of a shared informer: its start, its stop, and the end of its thread.

use std::time::Duration;

use super::SharedInformer;
use super::sink::InformerSink;
use crate::clock::{Clock, Deadline};
use crate::error::{Error, ErrorKind};
use crate::hooks::Hook;
use crate::informer::InformerMetric;
use crate::list_watch::ListerWatcher;
use crate::object::Object;
use crate::reflector::{Reflector, ReflectorOptions};
use crate::sync::{Arc, MutexGuard, atomic::Ordering};
use crate::worker::Task;

/// What a shutdown gives the informer's own thread in any case, of the system's time.
///
/// The thread ends within milliseconds. So one that takes longer is held up by code of the user's,
/// and is named for that.
const OWN_TIME: Duration = Duration::from_millis(500);

/// Whether an informer was started. Its thread and whether it is stopped are beside this.
pub(super) enum Life<K: Object> {
    /// It was not started.
    Ready(Box<Parts<K>>),
    /// A thread starts it, which calls code of the user's.
    Starting(Task),
    /// It was started or stopped.
    Over,
}

/// What an informer is started from.
pub(super) struct Parts<K: Object> {
    pub(super) source: Arc<dyn ListerWatcher<K>>,
    pub(super) sink: InformerSink<K>,
    pub(super) options: ReflectorOptions,
    pub(super) metrics: Option<Hook<InformerMetric>>,
}

impl<K: Object> SharedInformer<K> {
    /// Starts the informer's thread and returns at once; the network is touched on that thread.
    ///
    /// The periods of the handlers added so far decide how often it looks for a resync that is due
    /// (SI-21).
    ///
    /// # Errors
    ///
    /// `Config` when it was started before: `informer has already started` (SI-2); `Stopped` when
    /// it was stopped; `Resources` when the system has no thread to give, `Panicked` when the
    /// source or the metrics do as they are told of the start: it is stopped then.
    #[doc(alias = "Run")]
    pub fn start(&self) -> Result<(), Error> {
        let parts = {
            let mut life = self.life.lock();
            if self.is_stopped() {
                let text = "informer was not started because it has stopped already";
                return Err(Error::new(ErrorKind::Stopped, text));
            }
            match std::mem::replace(&mut *life, Life::Starting(Task::begin())) {
                Life::Ready(parts) => parts,
                other @ (Life::Starting(_) | Life::Over) => {
                    *life = other;
                    let text = "informer has already started";
                    return Err(Error::new(ErrorKind::Config, text));
                }
            }
        };
        self.processor.start();
        let started = self.spawn(*parts);
        if let Err(error) = &started {
            self.end_because(Some(error.clone()));
        } else if self.stopped.load(Ordering::SeqCst) {
            // A stop that came before the thread has found none.
            self.thread.stop();
        }
        *self.life.lock() = Life::Over;
        self.life.notify_all();
        started
    }

    fn spawn(&self, parts: Parts<K>) -> Result<(), Error> {
        let Parts {
            source,
            mut sink,
            mut options,
            metrics,
        } = parts;
        options.resync_period = self.processor.check_period();
        if let Err(error) = sink.announce(metrics, &self.name, &self.clock) {
            // Before the sink is dropped, which ends the store without a cause.
            self.end_because(Some(error.clone()));
            return Err(error);
        }
        let reflector = Reflector::spawn(&*self.name, source, sink, options)?;
        self.thread.add(reflector.into_worker());
        Ok(())
    }

    /// Asks the informer to end, and returns at once: no further call of a handler begins, what
    /// waits is dropped (SI-5).
    ///
    /// From any thread, a handler's own included, and by code that [`start`](Self::start) calls.
    /// Waits for its content to sync end with an error; what is in the store stays readable (SI-4).
    /// Stopping twice does nothing.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        let parts = {
            let mut life = self.life.lock();
            matches!(&*life, Life::Ready(_)).then(|| std::mem::replace(&mut *life, Life::Over))
        };
        self.thread.stop();
        // The thread may be held up by code of the user's; those who wait are not.
        self.end_because(None);
        // What was never started ends by being dropped, which is code of the user's.
        drop(parts);
    }

    /// Ends every wait, and lets no further call of a handler begin; the first cause is told.
    fn end_because(&self, cause: Option<Error>) {
        self.stopped.store(true, Ordering::SeqCst);
        self.store.end(cause);
        self.processor.end();
    }

    /// Stops the informer and waits for the end of its threads: the reflector's first, then those
    /// of the handlers (SI-5).
    ///
    /// The reflector's thread ends within milliseconds of whatever it is blocked in, except that
    /// code of yours ends when it returns: a transform, an index function, a handler's call. Blocks
    /// until all have ended, at most until `deadline`, of which the reflector's thread gets half a
    /// second in any case. A thread of the informer on which this is called is not waited for, nor
    /// one that waits, over others or not, for the end of the calling thread: a handler that calls
    /// this itself meanwhile. May be called again, with a later deadline, and from several threads.
    ///
    /// # Errors
    ///
    /// `Timeout` with the names of the threads and handlers that still run. They are asked to end,
    /// tell nobody anything more, and do when they return; dropping the informer does not wait for
    /// them. Also at once, if it is called by code that [`start`](Self::start) calls, such as
    /// metrics: the informer ends when that start returns.
    pub fn shutdown(&self, deadline: Deadline) -> Result<(), Error> {
        self.stop();
        let own = self.join(deadline);
        let handlers = self.processor.stop(deadline);
        match (own, handlers) {
            (Err(own), Err(handlers)) => {
                let text = format!("{own}; {handlers}");
                Err(Error::new(ErrorKind::Timeout, text))
            }
            (own, handlers) => own.and(handlers),
        }
    }

    /// Whether it was neither started nor stopped.
    pub(in crate::informer) fn is_ready_to_start(&self) -> bool {
        matches!(&*self.life.lock(), Life::Ready(_))
    }

    /// Waits while a thread starts it, at most until `deadline`.
    fn when_started(&self, deadline: Deadline) -> Result<MutexGuard<'_, Life<K>>, Error> {
        let name = &self.name;
        let mut life = self.life.lock();
        while let Life::Starting(task) = &*life {
            if self.clock.has_passed(deadline) {
                let text = format!("timed out waiting for informer {name}: it is being started");
                return Err(Error::new(ErrorKind::Timeout, text));
            }
            let waiting = task.wait(&format!("the start of informer {name}"));
            let _waiting = waiting.map_err(|_circle| {
                let text = format!(
                    "informer {name} ends when its start returns: shutdown was called on the thread that starts it"
                );
                Error::new(ErrorKind::Timeout, text)
            })?;
            life = self.clock.wait_until(&self.life, life, deadline);
        }
        Ok(life)
    }

    /// Waits for the informer's own thread; the caller's is not waited for.
    fn join(&self, deadline: Deadline) -> Result<(), Error> {
        drop(self.when_started(deadline)?);
        let system = Clock::system();
        let least = system.after(OWN_TIME);
        let mut late = self.thread.join(&self.clock, deadline);
        if !late.is_empty() {
            late = self.thread.join(&system, least);
        }
        if late.is_empty() {
            return Ok(());
        }
        let (name, thread) = (&self.name, late.join(", "));
        let text = format!(
            "timed out waiting for informer {name}: thread {thread} still runs, held up by a transform, an index function or a call of the source"
        );
        Err(Error::new(ErrorKind::Timeout, text))
    }

    /// Ends it as dropping it does: waits without a deadline, except for what a shutdown has named
    /// as late, which ends detached.
    pub(in crate::informer) fn close(&self) {
        self.stop();
        // A start on this very thread ends the informer when this returns.
        drop(self.when_started(Deadline::NEVER));
        self.thread.close();
        self.processor.close();
    }
}
