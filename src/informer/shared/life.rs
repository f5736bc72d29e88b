//! The life of a shared informer: its start, its stop, and the end of its thread.

use std::time::Duration;

use super::{InformerPhase, SharedInformer, StartParts};
use crate::clock::{Clock, Deadline};
use crate::error::{Error, ErrorKind};
use crate::object::Object;
use crate::reflector::Reflector;
use crate::sync::{MutexGuard, atomic::Ordering};
use crate::worker::Task;

/// What a shutdown gives the informer's own thread in any case, of the system's time.
///
/// The thread ends within milliseconds. So one that takes longer is held up by code of the user's,
/// and is named for that.
const OWN_TIME: Duration = Duration::from_millis(500);

impl<K: Object> SharedInformer<K> {
    /// Starts the informer's thread and returns at once. That thread sends the requests.
    ///
    /// The resync periods of the handlers added so far decide how often the informer checks whether
    /// a resync is due.
    ///
    /// # Errors
    ///
    /// - `Config` when it was started before: `informer has already started`.
    /// - `Stopped` when it was stopped.
    /// - `Resources` when the system has no thread to give. The informer is stopped then.
    /// - `Panicked` when the source or the metrics hook panics. The informer is stopped then.
    #[doc(alias = "Run")]
    pub fn start(&self) -> Result<(), Error> {
        let parts = {
            let mut life = self.life.lock();
            if self.is_stopped() {
                let text = "informer was not started because it has stopped already";
                return Err(Error::new(ErrorKind::Stopped, text));
            }
            match std::mem::replace(&mut *life, InformerPhase::Starting(Task::begin())) {
                InformerPhase::Ready(parts) => parts,
                other @ (InformerPhase::Starting(_) | InformerPhase::Over) => {
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
        *self.life.lock() = InformerPhase::Over;
        self.life.notify_all();
        started
    }

    fn spawn(&self, parts: StartParts<K>) -> Result<(), Error> {
        let StartParts {
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

    /// Asks the informer to end, and returns at once. No further call of a handler begins, and
    /// queued notifications are dropped.
    ///
    /// Any thread may call it, a handler's own included, and so may code that
    /// [`start`](Self::start) calls. Waits for its content to sync end with an error. The store
    /// stays readable. Stopping twice does nothing.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        let parts = {
            let mut life = self.life.lock();
            matches!(&*life, InformerPhase::Ready(_))
                .then(|| std::mem::replace(&mut *life, InformerPhase::Over))
        };
        self.thread.stop();
        // The thread may be held up by code of the user's; the waiters are not.
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

    /// Stops the informer and blocks until its threads have ended, the reflector's first, at most
    /// until `deadline`.
    ///
    /// The reflector's thread ends within milliseconds of whatever it is blocked in. A shutdown
    /// cannot interrupt code of the program, such as a transform, an index function or a call of a
    /// handler. It waits for the reflector's thread for at least half a second of real time, also
    /// past the deadline.
    ///
    /// It does not wait for the thread that calls this, if that is one of the informer's. Nor does
    /// it wait for a thread that waits for the end of the calling thread, directly or through
    /// others. It may be called again with a later deadline, and from several threads.
    ///
    /// # Errors
    ///
    /// `Timeout` with the names of the threads and handlers that still run. They deliver nothing
    /// more and end when their calls return; dropping the informer does not wait for them.
    ///
    /// `Timeout` at once, if code that [`start`](Self::start) calls, such as a metrics hook, calls
    /// this. The informer ends when that start returns.
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
        matches!(&*self.life.lock(), InformerPhase::Ready(_))
    }

    /// Waits while a thread starts it, at most until `deadline`.
    fn when_started(&self, deadline: Deadline) -> Result<MutexGuard<'_, InformerPhase<K>>, Error> {
        let name = &self.name;
        let mut life = self.life.lock();
        while let InformerPhase::Starting(task) = &*life {
            if self.clock.has_passed(deadline) {
                let text = format!("timed out waiting for informer {name}: it is being started");
                return Err(Error::new(ErrorKind::Timeout, text));
            }
            let waiting = task.wait(&format!("the start of informer {name}"));
            let _waiting = waiting.map_err(|_circle| {
                let text = format!(
                    "informer {name} ends when its start returns: shutdown was called on the \
                     thread that starts it"
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
            "timed out waiting for informer {name}: thread {thread} still runs, held up by a \
             transform, an index function or a call of the source"
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
