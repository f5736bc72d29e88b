//! Ends several threads within a bound: asks all to end, and names those that are late.

use super::{Ending, StopSource, Worker};
use crate::clock::{Clock, Deadline};
use crate::sync::{Mutex, Rank};

/// Threads that end together.
///
/// Dropping the group stops and joins them, except those that [`join`](Self::join) named as late,
/// which end detached, with a line in the log.
#[derive(Debug)]
pub(crate) struct WorkerGroup(Mutex<Vec<Member>>);

#[derive(Debug)]
struct Member {
    worker: Worker,
    is_late: bool,
}

impl Default for WorkerGroup {
    fn default() -> Self {
        Self(Mutex::ranked(Rank::WORKER_GROUP, Vec::new()))
    }
}

impl WorkerGroup {
    /// Takes over a thread.
    pub(crate) fn add(&self, worker: Worker) {
        let ended = {
            let mut members = self.0.lock();
            let ended = take_ended(&mut members);
            let is_late = false;
            members.push(Member { worker, is_late });
            ended
        };
        // Joins threads that have ended.
        drop(ended);
    }

    /// Asks all threads to end; returns at once.
    pub(crate) fn stop(&self) {
        let stop_of = |member: &Member| member.worker.stop.clone();
        let stops: Vec<StopSource> = self.0.lock().iter().map(stop_of).collect();
        // A stop wakes a blocked thread, which takes other locks.
        stops.iter().for_each(StopSource::stop);
    }

    /// Blocks until all threads have ended, at most until `deadline`; returns the names of those
    /// that have not.
    ///
    /// It does not wait for the calling thread, nor for one that waits for it, directly or through
    /// others.
    pub(crate) fn join(&self, clock: &Clock, deadline: Deadline) -> Vec<String> {
        let end_of = |member: &Member| member.worker.ending();
        let ends: Vec<Ending> = self.0.lock().iter().map(end_of).collect();
        let is_late = |end: &&Ending| matches!(end.wait_until(clock, deadline), Ok(false));
        let late = ends.iter().filter(is_late);
        let late: Vec<String> = late.map(|end| end.name().to_owned()).collect();
        let ended = {
            let mut members = self.0.lock();
            for member in members.iter_mut() {
                member.is_late |= late.contains(&member.worker.ending.name);
            }
            take_ended(&mut members)
        };
        drop(ended);
        late
    }

    /// Stops and joins the threads, as a drop does.
    pub(crate) fn close(&self) {
        self.stop();
        let members = std::mem::take(&mut *self.0.lock());
        for Member { worker, is_late } in members {
            if is_late && !worker.is_finished() {
                log::warn!(
                    "thread {} still runs while its owner is dropped: it ends detached",
                    worker.name()
                );
                worker.abandon();
            }
        }
    }
}

impl Drop for WorkerGroup {
    fn drop(&mut self) {
        self.close();
    }
}

fn take_ended(members: &mut Vec<Member>) -> Vec<Member> {
    members
        .extract_if(.., |member| member.worker.is_finished())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crossbeam_channel::{Receiver, bounded};

    use super::*;
    use crate::tests::until::until;
    use crate::worker::StopToken;

    /// A thread that ends only when its gate opens, whatever its stop.
    fn gated(name: &str, gate: Receiver<()>) -> Worker {
        Worker::spawn(name, move |_| {
            let _open = gate.recv();
        })
        .unwrap()
    }

    #[test]
    fn those_that_are_late_are_named_and_end_detached() {
        let clock = Clock::system();
        let (open, gate) = bounded::<()>(0);
        let group = WorkerGroup::default();
        group.add(Worker::spawn("t-quick", StopToken::wait).unwrap());
        let slow = gated("t-slow", gate);
        let end = slow.ending();
        group.add(slow);
        group.stop();
        // Only the thread that cannot end is late; the other one gets all the time that it needs.
        until(|| group.join(&clock, clock.after(Duration::ZERO)) == ["t-slow"]);
        drop(group);
        assert!(!end.has_come(), "the drop did not wait for it");
        drop(open);
        assert!(end.wait_until(&clock, Deadline::NEVER).unwrap());
    }

    #[test]
    fn a_drop_joins_those_that_are_not_late() {
        let clock = Clock::system();
        let group = WorkerGroup::default();
        let worker = Worker::spawn("t-joined", StopToken::wait).unwrap();
        let end = worker.ending();
        group.add(worker);
        drop(group);
        assert!(end.has_come());

        let group = WorkerGroup::default();
        group.add(Worker::spawn("t-ended", StopToken::wait).unwrap());
        group.stop();
        assert!(group.join(&clock, Deadline::NEVER).is_empty());
        assert!(group.0.lock().is_empty());
    }
}
