//! Thread schedules of a set, explored by a model checker: members of the model's own, which start,
//! sync and stop as informers do, but have no threads.
//!
//! `RUSTFLAGS='--cfg shuttle' cargo test --lib schedules`, with a target directory of its own.

use std::time::Duration;

use shuttle::thread;

use super::any::SetMember;
use super::{InformerSet, InformerSetOptions};
use crate::clock::{Clock, Deadline, FakeClock};
use crate::informer::Registration;
use crate::informer::tests::check;
use crate::object::Scope;
use crate::reflector::{ReflectorStatus, WaiterGuard, Waiters};
use crate::sync::{Arc, Monitor, Mutex};
use crate::{Error, ErrorKind};

/// Schedules per model: enough to find each bug that was put in on purpose while the models were
/// written.
const SCHEDULES: usize = 3_000;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Life {
    #[default]
    Ready,
    Running,
    Stopped,
}

#[derive(Debug, Default)]
struct State {
    life: Life,
    synced: bool,
}

/// An informer without threads. Its end may need another informer's stop, as when a handler waits
/// for the other's store.
#[derive(Clone)]
struct Fake {
    name: &'static str,
    state: Arc<Monitor<State>>,
    ends_after: Option<Arc<Monitor<State>>>,
    waiters: Waiters,
    clock: Clock,
}

impl Fake {
    fn new(name: &'static str, clock: &Clock) -> Self {
        Self {
            name,
            state: Arc::default(),
            ends_after: None,
            waiters: Waiters::new(),
            clock: clock.clone(),
        }
    }

    fn life(&self) -> Life {
        self.state.lock().life
    }

    /// The effect of its first list.
    fn sync(&self) {
        let mut state = self.state.lock();
        state.synced |= state.life == Life::Running;
        drop(state);
        self.state.notify_all();
    }

    fn turn(&self, life: Life) {
        self.state.lock().life = life;
        self.state.notify_all();
    }
}

impl SetMember for Fake {
    fn name(&self) -> &str {
        self.name
    }

    fn has_synced(&self) -> bool {
        self.state.lock().synced
    }

    fn status(&self) -> ReflectorStatus {
        ReflectorStatus::default()
    }

    fn health(&self) -> Result<(), Error> {
        Ok(())
    }

    fn objects(&self) -> usize {
        0
    }

    fn registrations(&self) -> Vec<Registration> {
        Vec::new()
    }

    fn is_stopped(&self) -> bool {
        self.life() == Life::Stopped
    }

    fn start(&self) -> Result<(), Error> {
        let mut state = self.state.lock();
        if state.life == Life::Ready {
            state.life = Life::Running;
        }
        Ok(())
    }

    fn waiters(&self) -> WaiterGuard {
        self.waiters.wait()
    }

    fn wait_until_synced(&self, deadline: Deadline) -> Result<(), Error> {
        let mut state = self.state.lock();
        loop {
            if state.synced {
                return Ok(());
            }
            let end = match state.life {
                Life::Ready => Some(ErrorKind::Config),
                Life::Stopped => Some(ErrorKind::Stopped),
                Life::Running if self.clock.has_passed(deadline) => Some(ErrorKind::NotSynced),
                Life::Running => None,
            };
            if let Some(kind) = end {
                return Err(Error::new(kind, self.name));
            }
            state = self.clock.wait_until(&self.state, state, deadline);
        }
    }

    fn stop(&self) {
        self.turn(Life::Stopped);
    }

    fn shutdown(&self, deadline: Deadline) -> Result<(), Error> {
        self.stop();
        let Some(other) = &self.ends_after else {
            return Ok(());
        };
        let mut state = other.lock();
        while state.life != Life::Stopped {
            state = self.clock.wait_until(other, state, deadline);
        }
        Ok(())
    }

    fn close(&self) {
        drop(self.shutdown(Deadline::NEVER));
    }
}

type Set = InformerSet<()>;

/// Takes the fake in; each name is a scope of its own.
fn enter(set: &Set, fake: &Fake) -> Result<bool, Error> {
    let scope = Scope::namespace(fake.name);
    Ok(set.enter(&scope, &Arc::new(fake.clone()))?.is_none())
}

fn set_of(fakes: &[Fake]) -> Arc<Set> {
    let set = InformerSet::new((), InformerSetOptions::default());
    for fake in fakes {
        assert!(enter(&set, fake).unwrap());
    }
    Arc::new(set)
}

/// IS-4: a thread adds and starts a member while others start, wait and stop. In the end nothing
/// runs, and each call has returned.
#[test]
fn entering_starting_waiting_and_stopping_at_once() {
    check(SCHEDULES, || {
        let clock = Clock::system();
        let (old, new) = (Fake::new("old", &clock), Fake::new("new", &clock));
        let set = set_of(std::slice::from_ref(&old));
        let (theirs, late) = (Arc::clone(&set), new.clone());
        let asker = thread::spawn(move || {
            let entered = enter(&theirs, &late);
            drop(theirs.start());
            entered.is_ok()
        });
        let theirs = Arc::clone(&set);
        let starter = thread::spawn(move || drop(theirs.start()));
        let theirs = Arc::clone(&set);
        let waiter = thread::spawn(move || theirs.wait_until_synced(Deadline::NEVER));
        let theirs = Arc::clone(&set);
        let stopper = thread::spawn(move || theirs.shutdown(Deadline::NEVER).unwrap());
        let entered = asker.join().unwrap();
        starter.join().unwrap();
        stopper.join().unwrap();
        let result = waiter.join().unwrap();
        assert_eq!(old.life(), Life::Stopped);
        let expected = if entered { Life::Stopped } else { Life::Ready };
        assert_eq!(new.life(), expected, "it runs on");
        assert!(!result.all_synced());
        let ends = [ErrorKind::Config, ErrorKind::Stopped];
        let mut errors = result
            .outcomes
            .iter()
            .filter_map(|outcome| outcome.error.as_ref());
        assert!(errors.all(|error| ends.contains(&error.kind())));
        assert_eq!(set.start().unwrap_err().kind(), ErrorKind::Stopped);
    });
}

/// IS-1: if several threads make the same member at once, exactly one has made it.
#[test]
fn one_of_those_who_enter_the_same_at_once_has_entered() {
    check(SCHEDULES, || {
        let clock = Clock::system();
        let set = set_of(&[]);
        let askers: Vec<_> = (0..3)
            .map(|_| {
                let (set, fake) = (Arc::clone(&set), Fake::new("one", &clock));
                thread::spawn(move || enter(&set, &fake).unwrap())
            })
            .collect();
        let entered: Vec<bool> = askers.into_iter().map(|it| it.join().unwrap()).collect();
        assert_eq!(entered.iter().filter(|new| **new).count(), 1);
        assert_eq!(set.members().len(), 1);
    });
}

/// IS-6: the members sync in any order, each in its own time, and the clock passes the deadline:
/// every wait ends, and a member that had synced before counts as synced.
#[test]
fn a_wait_for_all_ends_by_the_last_of_them_or_by_its_deadline() {
    check(SCHEDULES, || {
        let fake_clock = FakeClock::new();
        let clock = Clock::from(fake_clock.clone());
        let fakes = ["a", "b", "c"].map(|name| Fake::new(name, &clock));
        let set = set_of(&fakes);
        set.start().unwrap();
        let waiters = [clock.after(Duration::from_secs(1)), Deadline::NEVER].map(|deadline| {
            let set = Arc::clone(&set);
            thread::spawn(move || set.wait_until_synced(deadline))
        });
        let time = thread::spawn(move || fake_clock.advance(Duration::from_secs(1)));
        let syncing: Vec<_> = fakes
            .iter()
            .map(|fake| {
                let fake = fake.clone();
                thread::spawn(move || fake.sync())
            })
            .collect();
        let [hurried, patient] = waiters.map(|waiter| waiter.join().unwrap());
        assert!(patient.all_synced());
        let mut errors = hurried
            .outcomes
            .iter()
            .filter_map(|outcome| outcome.error.as_ref());
        assert!(errors.all(|error| error.kind() == ErrorKind::NotSynced));
        time.join().unwrap();
        for thread in syncing {
            thread.join().unwrap();
        }
        assert!(fakes.iter().all(|fake| !fake.waiters.any()));
    });
}

/// IS-4, IS-5: each member's end needs another's stop, so all are told to stop before the first
/// wait.
#[test]
fn no_member_waits_for_the_end_of_another_before_it_is_told() {
    for drops in [false, true] {
        check(SCHEDULES, move || {
            let clock = Clock::system();
            let mut fakes = ["a", "b"].map(|name| Fake::new(name, &clock));
            let second = Arc::clone(&fakes[1].state);
            fakes[0].ends_after = Some(second);
            let set = set_of(&fakes);
            set.start().unwrap();
            let theirs = Arc::clone(&set);
            let other = thread::spawn(move || theirs.shutdown(Deadline::NEVER).unwrap());
            if !drops {
                set.shutdown(Deadline::NEVER).unwrap();
            }
            drop(set);
            other.join().unwrap();
            assert!(fakes.iter().all(|fake| fake.life() == Life::Stopped));
        });
    }
}

/// Negative control: a stop that reads the members before it refuses new ones leaves one running,
/// and the checker sees that.
#[test]
#[should_panic(expected = "it runs on")]
fn a_stop_that_marks_the_list_too_late_leaves_one_running() {
    check(SCHEDULES, || {
        let clock = Clock::system();
        let list: Arc<(Mutex<Vec<Fake>>, Mutex<bool>)> = Arc::default();
        let (theirs, new) = (Arc::clone(&list), Fake::new("new", &clock));
        let late = new.clone();
        let asker = thread::spawn(move || {
            if !*theirs.1.lock() {
                theirs.0.lock().push(late.clone());
                late.start().unwrap();
            }
        });
        let members: Vec<Fake> = list.0.lock().clone();
        *list.1.lock() = true;
        for member in members {
            member.stop();
        }
        asker.join().unwrap();
        assert_ne!(new.life(), Life::Running, "it runs on");
    });
}
