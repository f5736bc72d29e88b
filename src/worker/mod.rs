//! A named OS thread with a stop token. The owner's drop joins it, and its panic is reported.

mod group;
#[cfg(all(test, shuttle))]
mod schedules;
mod stop;
mod waits;
mod wake_up;

pub use crate::sync::Wake;
pub(crate) use group::WorkerGroup;
pub use stop::{StopSource, StopToken, WaitEnd, WakeRegistration};
pub(crate) use waits::{Task, ThreadWait};
pub(crate) use wake_up::WakeUp;

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::clock::{Clock, Deadline};
use crate::sync::{
    Arc, JoinHandle, Monitor, ProcessCounter, Rank, ThreadId, atomic::Ordering, current_thread,
    thread,
};

/// The stack size of each worker, in bytes. Deep objects need it, and unused parts take no memory.
const STACK_BYTES: usize = 2 * 1024 * 1024;

static LIVE: ProcessCounter = ProcessCounter::new(0);

/// Returns how many worker threads of this crate are alive in the process. A leak test asserts
/// zero.
pub fn live_workers() -> usize {
    usize::try_from(LIVE.load(Ordering::SeqCst)).unwrap_or(usize::MAX)
}

/// The owner of a named thread. A drop stops the thread and joins it.
///
/// If its own thread drops it, it cannot join itself: it raises the stop, detaches, and logs that.
/// It does the same if the thread waits, directly or through others, for the thread that drops it.
#[derive(Debug)]
pub struct Worker {
    ending: Ending,
    stop: StopSource,
    thread: Option<JoinHandle<()>>,
}

/// The end of a thread, with the text of its panic; `None` before its end.
type ThreadEnd = Option<Result<(), String>>;

impl Worker {
    /// Starts a thread that runs `body` until it returns.
    ///
    /// Linux cuts thread names at 15 bytes: keep `name` short and unique, such as `rf-secret-17`.
    /// A NUL in it becomes a question mark.
    ///
    /// # Errors
    ///
    /// The system's own error when it refuses a thread.
    pub fn spawn(
        name: impl Into<String>,
        body: impl FnOnce(&StopToken) + Send + 'static,
    ) -> io::Result<Self> {
        // The system's names end at a NUL.
        let name = name.into().replace('\0', "?");
        let stop = StopSource::new();
        let token = stop.token();
        let thread_name = name.clone();
        let end = Arc::new(Monitor::ranked(Rank::WORKER_END, None));
        LIVE.fetch_add(1, Ordering::SeqCst);
        let mut alive = Alive {
            end: Arc::clone(&end),
            result: Ok(()),
        };
        let thread = thread::Builder::new()
            .name(name.clone())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                // Moved into the thread as a whole, whatever the body does.
                let alive = &mut alive;
                if let Err(payload) = catch_unwind(AssertUnwindSafe(|| body(&token))) {
                    let said = panic_literal(payload.as_ref());
                    log::error!("thread {thread_name} panicked{said}");
                    alive.result = Err(panic_text(payload.as_ref()));
                }
            })?;
        let ending = Ending {
            name,
            thread: thread.thread().id(),
            end,
        };
        Ok(Self {
            ending,
            stop,
            thread: Some(thread),
        })
    }

    /// The thread's name.
    pub fn name(&self) -> &str {
        &self.ending.name
    }

    /// Asks the thread to end; returns at once.
    pub fn stop(&self) {
        self.stop.stop();
    }

    /// Returns a token that observes this worker's stop.
    pub fn token(&self) -> StopToken {
        self.stop.token()
    }

    /// Whether the thread has ended.
    pub fn is_finished(&self) -> bool {
        self.ending.has_come()
    }

    pub(crate) fn thread_id(&self) -> ThreadId {
        self.ending.thread
    }

    /// A handle with which threads other than the owner wait for the thread.
    pub(crate) fn ending(&self) -> Ending {
        self.ending.clone()
    }

    /// Raises the stop and waits for the thread's end. Returns the text of its panic, if it
    /// panicked.
    ///
    /// Blocks until the thread has ended: milliseconds for a thread of this crate.
    ///
    /// # Errors
    ///
    /// The panic's text.
    pub fn join(mut self) -> Result<(), String> {
        self.end();
        self.ending.end.lock().clone().unwrap_or(Ok(()))
    }

    /// Raises the stop and detaches the thread, without waiting for its end.
    ///
    /// For threads in calls that nothing can interrupt: a name lookup in the system's resolver, or
    /// code of the program.
    pub(crate) fn abandon(mut self) {
        self.stop.stop();
        drop(self.thread.take());
    }

    fn end(&mut self) {
        self.stop.stop();
        let Some(thread) = self.thread.take() else {
            return;
        };
        let (id, name) = (self.ending.thread, &self.ending.name);
        match ThreadWait::begin(id, name) {
            // The body's panic was caught and reported, so a join error brings nothing new.
            Ok(_waiting) => drop(thread.join()),
            Err(_) if id == current_thread() => {
                log::warn!("thread {name} was dropped by itself: it ends detached");
            }
            Err(circle) => log::warn!(
                "thread {name} ends detached: it cannot end before this drop does, since {circle}"
            ),
        }
    }
}

/// The end of a worker, for which any number of threads can wait while its owner keeps it.
#[derive(Clone, Debug)]
pub(crate) struct Ending {
    name: String,
    thread: ThreadId,
    end: Arc<Monitor<ThreadEnd>>,
}

impl Ending {
    /// The thread's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Blocks until the thread has ended, at most until `deadline`; `false` if it has not.
    ///
    /// # Errors
    ///
    /// The thread waits for the caller, or is the caller, so it cannot end before the caller goes
    /// on.
    pub(crate) fn wait_until(&self, clock: &Clock, deadline: Deadline) -> Result<bool, String> {
        if self.has_come() {
            return Ok(true);
        }
        let _waiting = ThreadWait::begin(self.thread, &self.name)?;
        let end = self.end.lock();
        let has_come = |end: &mut ThreadEnd| end.is_some().then_some(());
        let (ended, _) = clock.wait_for(&self.end, end, deadline, has_come);
        Ok(ended.is_some())
    }

    /// Whether the thread has ended.
    pub(crate) fn has_come(&self) -> bool {
        self.end.lock().is_some()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end();
    }
}

/// Counts a live thread from before its start to its very end, unwinding included, and then records
/// its end.
struct Alive {
    end: Arc<Monitor<ThreadEnd>>,
    result: Result<(), String>,
}

impl Drop for Alive {
    fn drop(&mut self) {
        LIVE.fetch_sub(1, Ordering::SeqCst);
        *self.end.lock() = Some(std::mem::replace(&mut self.result, Ok(())));
        self.end.notify_all();
    }
}

/// Calls a wake-up of the program's. A panic must not keep other threads from being woken.
fn call(wake: &dyn Wake) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| wake.wake())) {
        let said = panic_literal(payload.as_ref());
        log::error!("a wake-up of a stop panicked{said}; nothing else ends by that");
        // The payload belongs to the program, too: its drop may panic again.
        drop(catch_unwind(AssertUnwindSafe(|| drop(payload))));
    }
}

/// The text of a panic, if it has one.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a panic without text".to_owned())
}

/// The text of a panic, if it is a literal of the program. Formatted text may contain parts of an
/// object.
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

    /// F21: an odd name from a program's configuration must not cause a panic.
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
