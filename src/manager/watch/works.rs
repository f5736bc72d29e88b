//! What all items of a manager share, and how their decisions are carried out, under no lock.

use std::convert::Infallible;
use std::sync::Weak;
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};

use super::ceiling::{Ceiling, Permit};
use super::checker::Checker;
use super::item::{Effect, RunId};
use super::launch::{Launcher, Plan, RunHandle};
use super::slot::{About, Action, Item, Slot};
use super::writer::Writer;
use crate::clock::{Clock, Coarse};
use crate::error::Error;
use crate::list_watch::Getter;
use crate::manager::answers::Answers;
use crate::manager::changes::Notifier;
use crate::manager::content::News;
use crate::manager::gets::Gets;
use crate::manager::options::ManagerOptions;
use crate::object::Object;
use crate::sync::{Arc, Monitor};

/// A run's thread and its room under the ceiling, which is given back after the thread has ended.
#[derive(Debug)]
pub(crate) struct Run {
    handle: Box<dyn RunHandle>,
    _room: Permit,
    /// Dropped last: the manager's end waits for it.
    _alive: Alive,
}

/// Counts a run among those the manager's end waits for, until it is dropped, whatever drops it. It
/// does not hold what it counts in: an ended run may lie there.
#[derive(Debug)]
struct Alive(Weak<Monitor<Chores>>);

impl Alive {
    fn new(chores: &Arc<Monitor<Chores>>) -> Self {
        {
            let mut chores = chores.lock();
            chores.alive = chores.alive.saturating_add(1);
        }
        Self(Arc::downgrade(chores))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        let Some(chores) = self.0.upgrade() else {
            return;
        };
        {
            let mut chores = chores.lock();
            chores.alive = chores.alive.saturating_sub(1);
        }
        chores.notify_all();
    }
}

impl Run {
    /// Waits for the thread's end: milliseconds, since its stop was raised.
    pub(crate) fn join(self) {
        // The thread's own report of its panic is in the log; a run that crashed is started again.
        drop(self.handle.join());
    }
}

/// What waits for the housekeeper.
#[derive(Debug, Default)]
pub(crate) struct Chores {
    /// Runs that were told to end and are to be joined.
    pub(crate) ended: Vec<Run>,
    /// Runs that were begun and neither joined nor refused. Some may be in no slot and not in `ended` either, on their
    /// way from one to the other on another thread.
    pub(crate) alive: usize,
    /// A server that gave one object's watch no answer gives one again.
    pub(crate) recovered: bool,
}

/// The shared works of one manager.
#[derive(Debug)]
pub(crate) struct Works<K: Object> {
    pub(crate) options: ManagerOptions,
    pub(crate) changes: Notifier,
    pub(crate) chores: Arc<Monitor<Chores>>,
    pub(crate) gets: Gets<K>,
    pub(crate) checker: Checker<K>,
    pub(crate) answers: Answers<K, About>,
    launcher: Box<dyn Launcher<K>>,
    ceiling: Arc<Ceiling>,
}

impl<K: Object> Works<K> {
    pub(crate) fn new(
        launcher: Box<dyn Launcher<K>>,
        getter: Arc<dyn Getter<K>>,
        options: ManagerOptions,
    ) -> Arc<Self>
    where
        K: Clone,
    {
        Arc::new(Self {
            changes: Notifier::default(),
            chores: Arc::new(Monitor::default()),
            gets: Gets::new(getter),
            checker: Checker::default(),
            answers: Answers::default(),
            launcher,
            ceiling: Arc::new(Ceiling::new(options.reflectors_max)),
            options,
        })
    }

    /// Changes an item, and what its readers find at once, in one step.
    pub(crate) fn change<R>(&self, item: &Item<K>, change: impl FnOnce(&mut Slot<K>) -> R) -> R {
        let (result, _replaced) = {
            let mut slot = item.slot.lock();
            let result = change(&mut slot);
            let (key, ready) = (&item.about.key, slot.ready(self.clock()));
            let unread = Coarse::default();
            let (replaced, read_at) = self.answers.publish(key, &item.about, ready, unread);
            slot.note_read(read_at);
            (result, replaced)
        };
        result
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.options.clock
    }

    pub(crate) fn idle_max(&self) -> Duration {
        self.options.idle_max
    }

    /// Carries out what a slot decided. Called under no lock; never blocks on the network or on a thread's end.
    pub(crate) fn perform(self: &Arc<Self>, item: &Item<K>, action: Action) {
        match action.effect {
            Effect::Start(run) => self.start(item, run),
            Effect::Check => self.checker.check(self, item),
            Effect::End => {
                if let Some(run) = action.ending {
                    self.end(run);
                }
                // Whoever waits for the run's answer has another one now, or none to wait for.
                item.slot.notify_all();
            }
            Effect::Nothing | Effect::Keep | Effect::Discard => {}
        }
    }

    fn start(self: &Arc<Self>, item: &Item<K>, id: RunId) {
        let alive = Alive::new(&self.chores);
        let room = self.ceiling.reserve();
        let (_owning, owned) = bounded(0);
        let launched = room.and_then(|room| {
            let handle = self.launch(item, id, owned)?;
            Ok(Run {
                handle,
                _room: room,
                _alive: alive,
            })
        });
        match launched {
            Ok(run) => {
                let late = self.change(item, |slot| slot.accept_run(id, run));
                if let Some(run) = late {
                    self.end(run);
                }
            }
            Err(error) => {
                let news = self.change(item, |slot| slot.refuse_run(id, error));
                item.slot.notify_all();
                if news == News::Changed {
                    self.changes.tell(&item.about.key);
                }
            }
        }
    }

    fn launch(
        self: &Arc<Self>,
        item: &Item<K>,
        id: RunId,
        owned: Receiver<Infallible>,
    ) -> Result<Box<dyn RunHandle>, Error> {
        let (ended, end) = bounded(0);
        let now = self.clock().now();
        let (floor, previous) = self.change(item, |slot| slot.begin_run(end, now));
        let plan = Plan {
            demand: item.about.demand.clone(),
            floor,
            previous,
            owned,
        };
        let writer = Writer::new(Arc::clone(self), item.clone(), id, ended);
        self.launcher.launch(writer, plan)
    }

    /// Has the housekeeper tell the other objects that the server answers again.
    pub(crate) fn server_recovered(&self) {
        self.chores.lock().recovered = true;
        self.chores.notify_all();
    }

    /// Raises a run's stop and leaves the join to the housekeeper.
    fn end(&self, run: Run) {
        run.handle.stop();
        self.chores.lock().ended.push(run);
        self.chores.notify_all();
    }
}
