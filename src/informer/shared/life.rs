//! The life of a shared informer: its start, its stop, and the end of its thread.

use std::time::Duration;

use super::{InformerPhase, ReflectorParts, SharedInformer};
use crate::clock::{Clock, Deadline, IntoDeadline};
use crate::error::{Error, ErrorKind};
use crate::object::Object;
use crate::reflector::Reflector;
use crate::sync::{MutexGuard, atomic::Ordering};
use crate::worker::Task;

/// The least time that a shutdown allows the informer's own thread, on the system's clock.
///
/// The thread ends within milliseconds by itself. If it takes longer, code of the program holds it
/// up, and the error names it.
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
    /// - `Resources` when the system refuses a thread. The informer is stopped then.
    /// - `Panicked` when the source or the metrics hook panics. The informer is stopped then.
    #[doc(alias = "Run")]
    pub fn start(&self) -> Result<(), Error> {
        self.start_with(|(source, sink, options)| {
            let reflector = Reflector::spawn(&*self.name, source, sink, options)?;
            self.thread.add(reflector.into_worker());
            Ok(())
        })
    }

    /// As [`start`](Self::start); `run` runs the reflector.
    pub(crate) fn start_with(
        &self,
        run: impl FnOnce(ReflectorParts<K>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (parts, metrics) = {
            let mut life = self.life.lock();
            if self.is_stopped() {
                let text = "informer was not started because it has stopped already";
                return Err(Error::new(ErrorKind::Stopped, text));
            }
            match std::mem::replace(&mut *life, InformerPhase::Starting(Task::begin())) {
                InformerPhase::Ready(parts, metrics) => (parts, metrics),
                other @ (InformerPhase::Starting(_) | InformerPhase::Over) => {
                    *life = other;
                    return Err(Error::config("informer has already started"));
                }
            }
        };
        self.processor.start();
        let (source, mut sink, mut options) = *parts;
        options.resync_period = self.processor.check_period();
        let announced = sink.announce(metrics, &self.name, &self.clock);
        if let Err(error) = &announced {
            // Before the sink is dropped, which ends the store without a cause.
            self.end_because(Some(error.clone()));
        }
        let started = announced.and_then(|()| run((source, sink, options)));
        if let Err(error) = &started {
            self.end_because(Some(error.clone()));
        } else if self.stopped.load(Ordering::SeqCst) {
            // An earlier stop found no thread to stop.
            self.thread.stop();
        }
        *self.life.lock() = InformerPhase::Over;
        self.life.notify_all();
        started
    }

    /// Asks the informer to end, and returns at once. No further call of a handler begins, and
    /// queued notifications are dropped.
    ///
    /// Any thread may call it, including a handler's own, and so may code that
    /// [`start`](Self::start) calls. Waits for its content to sync end with an error. The store
    /// stays readable. Stopping twice does nothing.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        let parts = {
            let mut life = self.life.lock();
            matches!(&*life, InformerPhase::Ready(..))
                .then(|| std::mem::replace(&mut *life, InformerPhase::Over))
        };
        self.thread.stop();
        // Code of the program may hold up the thread, but not the waiters.
        self.end_because(None);
        // Parts that were never started end by their drop, which may run code of the program.
        drop(parts);
    }

    /// Ends every wait, and prevents further calls of handlers. The first cause wins.
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
    /// handler. It gives the reflector's thread at least half a second of real time, even past the
    /// deadline.
    ///
    /// It does not wait for the calling thread, if that is one of the informer's. Nor does it wait
    /// for a thread that waits, directly or through others, for the calling thread to end. A
    /// program may call it again with a later deadline, and from several threads.
    ///
    /// # Errors
    ///
    /// `Timeout` with the names of the threads and handlers that still run. They deliver nothing
    /// more and end when their calls return; dropping the informer does not wait for them.
    ///
    /// `Timeout` at once, if code that [`start`](Self::start) calls, such as a metrics hook, calls
    /// this. The informer ends when that start returns.
    pub fn shutdown(&self, deadline: impl IntoDeadline) -> Result<(), Error> {
        let deadline = deadline.into_deadline(&self.clock);
        self.stop();
        let own = self.join(deadline);
        let handlers = self.processor.stop(deadline);
        match (own, handlers) {
            (Err(own), Err(handlers)) => {
                Err(Error::new(ErrorKind::Timeout, format!("{own}; {handlers}")))
            }
            (own, handlers) => own.and(handlers),
        }
    }

    /// Whether it was neither started nor stopped.
    pub(in crate::informer) fn is_ready_to_start(&self) -> bool {
        matches!(&*self.life.lock(), InformerPhase::Ready(..))
    }

    /// Waits while another thread starts it, at most until `deadline`.
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

    /// Waits for the informer's own thread, unless it is the caller's.
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

    /// Ends it like a drop: waits without a deadline, but not for threads that a shutdown named as
    /// late, which end detached.
    pub(in crate::informer) fn close(&self) {
        self.stop();
        // A start on this very thread ends the informer when this returns.
        drop(self.when_started(Deadline::NEVER));
        self.thread.close();
        self.processor.close();
    }
}
