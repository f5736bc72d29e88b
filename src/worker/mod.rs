//! A named OS thread with a stop token: joined when its owner is dropped, its panic reported and not lost.

mod group;
#[cfg(all(test, shuttle))]
mod schedules;
mod stop;
mod waits;

pub use crate::sync::Wake;
pub(crate) use group::WorkerGroup;
pub use stop::{StopSource, StopToken, WaitEnd, WakeRegistration};
pub(crate) use waits::{Circle, Task, Waiting};

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::clock::{Clock, Deadline};
use crate::sync::{
    Arc, JoinHandle, Monitor, Mutex, ProcessCounter, Rank, ThreadId, atomic::Ordering,
    current_thread, thread,
};

/// Bytes of stack each worker reserves. The size costs nothing resident; deep objects need it.
const STACK_BYTES: usize = 2 * 1024 * 1024;

static LIVE: ProcessCounter = ProcessCounter::new(0);

/// How many worker threads of this crate are alive in the process: what a leak guard asserts to be zero.
pub fn live_workers() -> usize {
    usize::try_from(LIVE.load(Ordering::SeqCst)).unwrap_or(usize::MAX)
}

/// A named thread, its stop and its end: dropping it raises the stop and joins.
///
/// Dropped on its own thread (by user code that owns it there) it cannot join itself: it raises the stop and
/// detaches, and says so in the log. The same where its thread waits, over others or not, for the
/// thread that drops it.
#[derive(Debug)]
pub struct Worker {
    name: String,
    stop: StopSource,
    thread: Option<JoinHandle<()>>,
    panic: Arc<Mutex<Option<String>>>,
    ended: Arc<Monitor<bool>>,
}

impl Worker {
    /// Starts a thread that runs `body` until it returns.
    ///
    /// Linux cuts thread names at 15 bytes: keep `name` short and unique, such as `rf-secret-17`.
    /// A NUL in it becomes a question mark.
    ///
    /// # Errors
    ///
    /// The system's own error when it has no thread to give.
    pub fn spawn(
        name: impl Into<String>,
        body: impl FnOnce(&StopToken) + Send + 'static,
    ) -> io::Result<Self> {
        // The system's names end at a NUL.
        let name = name.into().replace('\0', "?");
        let stop = StopSource::new();
        let token = stop.token();
        let panic = Arc::new(Mutex::ranked(Rank::WORKER_END, None));
        let report = Arc::clone(&panic);
        let thread_name = name.clone();
        let alive = Alive::new();
        let ended = Arc::new(Monitor::ranked(Rank::WORKER_END, false));
        let end = Ended(Arc::clone(&ended));
        let thread = thread::Builder::new()
            .name(name.clone())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let _end = end;
                let _alive = alive;
                if let Err(payload) = catch_unwind(AssertUnwindSafe(|| body(&token))) {
                    let said = panic_literal(payload.as_ref());
                    log::error!("thread {thread_name} panicked{said}");
                    *report.lock() = Some(panic_text(payload.as_ref()));
                }
            })?;
        Ok(Self {
            name,
            stop,
            thread: Some(thread),
            panic,
            ended,
        })
    }

    /// The thread's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Asks the thread to end; returns at once.
    pub fn stop(&self) {
        self.stop.stop();
    }

    /// A token of this worker's stop.
    pub fn token(&self) -> StopToken {
        self.stop.token()
    }

    /// Whether the thread has ended.
    pub fn is_finished(&self) -> bool {
        self.thread.is_none() || self.has_ended()
    }

    /// The thread, until it has been joined or let go.
    pub(crate) fn thread_id(&self) -> Option<ThreadId> {
        self.thread.as_ref().map(|handle| handle.thread().id())
    }

    /// What somebody else than the owner needs to wait for the thread.
    pub(crate) fn ending(&self) -> Ending {
        Ending {
            name: self.name.clone(),
            thread: self.thread_id(),
            ended: Arc::clone(&self.ended),
        }
    }

    /// Whether the thread has passed its last act.
    pub(crate) fn has_ended(&self) -> bool {
        *self.ended.lock()
    }

    /// The text of the panic that ended the thread, if one did.
    pub fn panic_text(&self) -> Option<String> {
        self.panic.lock().clone()
    }

    /// Raises the stop and waits for the thread's end; returns the text of its panic, if it panicked.
    ///
    /// Blocks until the thread has ended: milliseconds for a thread of this crate.
    ///
    /// # Errors
    ///
    /// The panic's text.
    pub fn join(mut self) -> Result<(), String> {
        self.end();
        self.panic.lock().take().map_or(Ok(()), Err)
    }

    /// Raises the stop and lets go of the thread without waiting for its end.
    ///
    /// For threads inside what nothing can interrupt: a name lookup in the system's resolver, code of the user's.
    pub(crate) fn abandon(mut self) {
        self.stop.stop();
        drop(self.thread.take());
    }

    fn end(&mut self) {
        self.stop.stop();
        let Some(thread) = self.thread.take() else {
            return;
        };
        let id = thread.thread().id();
        match Waiting::begin(id, &self.name) {
            // The body's panic was caught and reported, so a join error cannot carry news.
            Ok(_waiting) => drop(thread.join()),
            Err(_) if id == current_thread() => log::warn!(
                "thread {} was dropped by itself: it ends detached",
                self.name
            ),
            Err(circle) => log::warn!(
                "thread {} ends detached: it cannot end before this drop does, since {circle}",
                self.name
            ),
        }
    }
}

/// The end of a worker, to be waited for by any number, while its owner keeps it.
#[derive(Clone, Debug)]
pub(crate) struct Ending {
    name: String,
    thread: Option<ThreadId>,
    ended: Arc<Monitor<bool>>,
}

impl Ending {
    /// The thread's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Blocks until the thread has passed its last act, at most until `deadline`; `false` if it has not.
    ///
    /// # Errors
    ///
    /// The thread waits for the caller, or is the caller: it has not ended, and does not before the
    /// caller goes on.
    pub(crate) fn wait_until(&self, clock: &Clock, deadline: Deadline) -> Result<bool, Circle> {
        if self.has_come() {
            return Ok(true);
        }
        let target = self.thread.map(|thread| Waiting::begin(thread, &self.name));
        let _waiting = target.transpose()?;
        let ended = self.ended.lock();
        let (ended, _) = clock.wait_for(&self.ended, ended, deadline, |ended| ended.then_some(()));
        Ok(ended.is_some())
    }

    /// Whether the thread has passed its last act.
    pub(crate) fn has_come(&self) -> bool {
        *self.ended.lock()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end();
    }
}

/// Says that the thread has ended, unwinding included.
struct Ended(Arc<Monitor<bool>>);

impl Drop for Ended {
    fn drop(&mut self) {
        *self.0.lock() = true;
        self.0.notify_all();
    }
}

/// Counts a live thread from before its start to its very end, unwinding included.
struct Alive;

impl Alive {
    fn new() -> Self {
        LIVE.fetch_add(1, Ordering::SeqCst);
        Self
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        LIVE.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What a panic said, if it said it in words.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a panic without text".to_owned())
}

/// What a panic said, if the words stand in the program's text: formatted ones may hold what is in an object.
pub(crate) fn panic_literal(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>();
    text.map(|text| format!(": {text}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_for_the_end_ends_with_it_or_at_its_deadline() {
        let clock = Clock::system();
        let (go, gate) = crossbeam_channel::bounded::<()>(0);
        let worker = Worker::spawn("t-end", move |_| {
            let _open = gate.recv();
        })
        .unwrap();
        let end = worker.ending();
        let passed = clock.after(std::time::Duration::ZERO);
        assert!(!end.wait_until(&clock, passed).unwrap());
        drop(go);
        assert!(end.wait_until(&clock, Deadline::NEVER).unwrap());
        assert!(end.has_come());
    }

    /// F21: a name out of a program's configuration is no reason to panic.
    #[test]
    fn a_name_that_no_thread_can_have_is_mended() {
        let worker = Worker::spawn("t-a\0b", StopToken::wait).unwrap();
        assert_eq!(worker.name(), "t-a?b");
        worker.join().unwrap();
    }

    #[test]
    fn dropping_a_worker_stops_and_joins_it() {
        let (ended, end) = crossbeam_channel::bounded(1);
        let worker = Worker::spawn("t-drop", move |stop| {
            stop.wait();
            ended.send(()).unwrap();
        })
        .unwrap();
        drop(worker);
        end.try_recv()
            .expect("joined, so its last act has happened");
    }

    #[test]
    fn a_panic_is_reported_and_not_lost() {
        let worker = Worker::spawn("t-panic", |_| panic!("told")).unwrap();
        assert_eq!(worker.join(), Err("told".to_owned()));
    }

    #[test]
    fn a_worker_dropped_on_its_own_thread_detaches() {
        let (give, take) = crossbeam_channel::bounded::<Worker>(1);
        let (ended, end) = crossbeam_channel::bounded(1);
        let worker = Worker::spawn("t-self", move |_| {
            drop(take.recv().unwrap());
            ended.send(()).unwrap();
        })
        .unwrap();
        give.send(worker).unwrap();
        end.recv().expect("it did not wait for itself");
    }
}
