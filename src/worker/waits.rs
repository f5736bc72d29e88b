//! Records which thread waits for which, so that threads never wait for each other's end in a
//! circle.

use crate::sync::{Arc, ProcessFlag, ProcessMutex, ThreadId, atomic::Ordering, current_thread};

/// All waits of the process for the end of a thread or of its task: at most one per waiting thread,
/// so few. Models that run side by side number their threads alike, so each has a table of its own.
#[cfg(not(shuttle))]
fn table() -> &'static ProcessMutex<Vec<Wait>> {
    static WAITS: ProcessMutex<Vec<Wait>> = ProcessMutex::new(Vec::new());
    &WAITS
}

#[cfg(shuttle)]
fn table() -> &'static ProcessMutex<Vec<Wait>> {
    std::thread_local! {
        static WAITS: &'static ProcessMutex<Vec<Wait>> = Box::leak(Box::default());
    }
    WAITS.with(|waits| *waits)
}

struct Wait {
    waiter: ThreadId,
    target: ThreadId,
    target_name: String,
    /// Whether the awaited task is over, although the waiter has not woken yet. Never set for the
    /// end of a thread, which waits for nothing afterwards.
    is_over: Arc<ProcessFlag>,
}

/// A task of a thread for which others wait, and which ends before the thread does.
#[derive(Debug)]
pub(crate) struct Task {
    by: ThreadId,
    is_over: Arc<ProcessFlag>,
}

impl Task {
    /// Begins a task of the calling thread, which lasts until this is dropped.
    pub(crate) fn begin() -> Self {
        Self {
            by: current_thread(),
            is_over: Arc::default(),
        }
    }

    /// As [`ThreadWait::begin`], for the end of this task.
    ///
    /// # Errors
    ///
    /// As there: the circle of waits.
    pub(crate) fn wait(&self, name: &str) -> Result<ThreadWait, String> {
        ThreadWait::register(self.by, name, Arc::clone(&self.is_over))
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
    }
}

/// The calling thread's wait for the end of another thread, until this is dropped.
#[derive(Debug)]
pub(crate) struct ThreadWait {
    waiter: ThreadId,
}

impl ThreadWait {
    /// Registers a wait of the calling thread. `name` names its target in an error.
    ///
    /// # Errors
    ///
    /// The target is the caller, or waits for it, directly or through others, so it cannot end
    /// before the caller goes on. The text has the chain from the target to the caller: `a waits
    /// for the end of b, and b waits for the end of c`. It is empty if the target is the caller.
    pub(crate) fn begin(target: ThreadId, name: &str) -> Result<Self, String> {
        Self::register(target, name, Arc::default())
    }

    fn register(target: ThreadId, name: &str, is_over: Arc<ProcessFlag>) -> Result<Self, String> {
        let waiter = current_thread();
        let mut waits = table().lock();
        let (mut at, mut at_name) = (target, name.to_owned());
        let mut circle = Vec::new();
        // A thread waits for one end at a time, and the table has no circle, so this ends.
        while at != waiter {
            let is_on = |wait: &&Wait| wait.waiter == at && !wait.is_over.load(Ordering::SeqCst);
            let Some(next) = waits.iter().rfind(is_on) else {
                waits.push(Wait {
                    waiter,
                    target,
                    target_name: name.to_owned(),
                    is_over,
                });
                return Ok(Self { waiter });
            };
            circle.push(format!(
                "{at_name} waits for the end of {}",
                next.target_name
            ));
            (at, at_name) = (next.target, next.target_name.clone());
        }
        Err(circle.join(", and "))
    }
}

impl Drop for ThreadWait {
    fn drop(&mut self) {
        let mut waits = table().lock();
        if let Some(at) = waits.iter().rposition(|wait| wait.waiter == self.waiter) {
            waits.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::bounded;

    use super::*;
    use crate::tests::until::until;
    use crate::worker::Worker;

    #[test]
    fn nobody_waits_for_itself() {
        let circle = ThreadWait::begin(current_thread(), "itself").unwrap_err();
        assert_eq!(circle, "");
    }

    /// A second thread waits for the test's thread, and a third one for the second.
    #[test]
    fn who_would_close_a_circle_is_told_all_of_it_until_one_wait_ends() {
        let first = current_thread();
        let (go, gate) = bounded::<()>(0);
        let (tell, told) = bounded(1);
        let workers = ["second", "third"].map(|name| {
            let (gate, tell) = (gate.clone(), tell.clone());
            let (wait, target) = bounded(1);
            let worker = Worker::spawn(name, move |_| {
                let (target, target_name): (ThreadId, &str) = target.recv().unwrap();
                let waiting = ThreadWait::begin(target, target_name).unwrap();
                tell.send(current_thread()).unwrap();
                let _open = gate.recv();
                drop(waiting);
            });
            (worker.unwrap(), wait)
        });
        let mut target = (first, "first");
        for (nth, name) in [(0, "second"), (1, "third")] {
            workers[nth].1.send(target).unwrap();
            target = (told.recv().unwrap(), name);
        }
        let circle = ThreadWait::begin(target.0, target.1).unwrap_err();
        let text = "third waits for the end of second, and second waits for the end of first";
        assert_eq!(circle, text);
        drop(go);
        // Not joined: that would be a wait, too, while theirs are still in the table.
        for (worker, _) in &workers {
            until(|| worker.is_finished());
        }
        drop(ThreadWait::begin(target.0, target.1).unwrap());
    }

    /// A thread that has not woken yet from a finished wait waits for no other.
    #[test]
    fn a_task_that_is_over_closes_no_circle() {
        let (go, gate) = bounded::<()>(0);
        let (tell, told) = bounded(0);
        let task = Task::begin();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let waiting = task.wait("the start").unwrap();
                tell.send(current_thread()).unwrap();
                let _open = gate.recv();
                drop(waiting);
            });
            let waiter = told.recv().unwrap();
            let circle = ThreadWait::begin(waiter, "a").unwrap_err();
            assert_eq!(circle, "a waits for the end of the start");
            task.is_over.store(true, Ordering::SeqCst);
            drop(ThreadWait::begin(waiter, "a").unwrap());
            drop(go);
            waits.join().unwrap();
        });
        assert!(
            task.wait("itself").is_err(),
            "a thread's own task is always one"
        );
    }
}
