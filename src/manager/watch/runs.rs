//! The runs of a manager's reflectors: how they are started, and how their ends are handed to the
//! housekeeper. Nothing here is called under a lock, or blocks on the network or on a thread's end.

use std::convert::Infallible;
use std::fmt;
use std::sync::Weak;

use crossbeam_channel::{Receiver, bounded};

use super::entry::{WatchEntry, WatchedObject};
use super::launch::{Launcher, Plan, RunHandle};
use super::reflector_limit::{Permit, ReflectorLimit};
use super::state_machine::RunId;
use super::writer::Writer;
use crate::error::Error;
use crate::list_watch::Getter;
use crate::manager::entry::table::EntryTable;
use crate::manager::kinds::KindTraits;
use crate::manager::options::ManagerOptions;
use crate::object::Object;
use crate::sync::{Arc, Monitor, Rank};

/// A run's thread and its room under the limit, which is given back after the thread has ended.
#[derive(Debug)]
pub(crate) struct Run {
    handle: Box<dyn RunHandle>,
    _room: Permit,
    /// Dropped last: the manager's end waits for it.
    _alive: Alive,
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
pub(crate) struct PendingWork {
    /// Runs that were told to end and are to be joined.
    pub(crate) ended: Vec<Run>,
    /// Runs that were begun and neither joined nor refused. Some may be in no entry and not in
    /// `ended` either, on their way from one to the other on another thread.
    pub(crate) alive: usize,
    /// A server that gave one object's watch no answer gives one again.
    pub(crate) recovered: bool,
    /// The housekeeper's panic, until it has been round once more.
    pub(crate) failure: Option<Error>,
}

/// Counts a run among those the manager's end waits for, until it is dropped, whatever drops it. It
/// does not hold what it counts in: an ended run may lie there.
#[derive(Debug)]
struct Alive(Weak<Monitor<PendingWork>>);

impl Alive {
    fn new(work: &Arc<Monitor<PendingWork>>) -> Self {
        {
            let mut work = work.lock();
            work.alive = work.alive.saturating_add(1);
        }
        Self(Arc::downgrade(work))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        let Some(work) = self.0.upgrade() else {
            return;
        };
        {
            let mut work = work.lock();
            work.alive = work.alive.saturating_sub(1);
        }
        work.notify_all();
    }
}

/// The entries of one manager and the work of its housekeeper: what a run's writer needs.
#[derive(Debug)]
pub(crate) struct RunContext<K: Object> {
    pub(crate) table: Arc<EntryTable<K, WatchEntry<K>>>,
    pub(crate) work: Arc<Monitor<PendingWork>>,
}

impl<K: Object> Clone for RunContext<K> {
    fn clone(&self) -> Self {
        Self {
            table: Arc::clone(&self.table),
            work: Arc::clone(&self.work),
        }
    }
}

impl<K: Object> RunContext<K> {
    /// Raises a run's stop and leaves the join to the housekeeper.
    pub(crate) fn end(&self, run: Run) {
        run.handle.stop();
        self.work.lock().ended.push(run);
        self.work.notify_all();
    }

    /// Has the housekeeper tell the other objects that the server answers again.
    pub(crate) fn server_recovered(&self) {
        self.work.lock().recovered = true;
        self.work.notify_all();
    }

    /// Tells who waits for the entry, and subscribers if there is news.
    pub(crate) fn notify(&self, object: &WatchedObject<K>, is_news: bool) {
        object.state.notify_all();
        if is_news {
            self.table.changes.tell(&object.key);
        }
    }
}

/// Starts the runs of one manager.
pub(crate) struct Runs<K: Object> {
    pub(crate) context: RunContext<K>,
    launcher: Box<dyn Launcher<K>>,
    limit: Arc<ReflectorLimit>,
}

impl<K: Object> fmt::Debug for Runs<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runs").finish_non_exhaustive()
    }
}

impl<K: Object> Runs<K> {
    pub(crate) fn new(
        launcher: Box<dyn Launcher<K>>,
        kind: KindTraits<K>,
        getter: Arc<dyn Getter<K>>,
        options: ManagerOptions,
    ) -> Self {
        Self {
            limit: Arc::new(ReflectorLimit::new(options.reflectors_max)),
            launcher,
            context: RunContext {
                table: EntryTable::new(kind, getter, options),
                work: Arc::new(Monitor::ranked(Rank::HOUSEKEEPER, PendingWork::default())),
            },
        }
    }

    /// Starts a run that the entry has decided on.
    pub(crate) fn start(&self, object: &WatchedObject<K>, id: RunId) {
        let context = &self.context;
        let alive = Alive::new(&context.work);
        let room = self.limit.reserve();
        let (_owning, owned) = bounded(0);
        let launched = room.and_then(|room| {
            Ok(Run {
                handle: self.launch(object, id, owned)?,
                _room: room,
                _alive: alive,
            })
        });
        match launched {
            Ok(run) => {
                let late = context
                    .table
                    .change(object, |entry| entry.accept_run(id, run));
                if let Some(run) = late {
                    context.end(run);
                }
            }
            Err(error) => {
                let is_news = context
                    .table
                    .change(object, |entry| entry.refuse_run(id, error));
                context.notify(object, is_news);
            }
        }
    }

    fn launch(
        &self,
        object: &WatchedObject<K>,
        id: RunId,
        owned: Receiver<Infallible>,
    ) -> Result<Box<dyn RunHandle>, Error> {
        let (ended, end) = bounded(0);
        let table = &self.context.table;
        let now = table.clock().now();
        let (floor, previous) = table.change(object, |entry| entry.begin_run(end, now));
        let plan = Plan {
            demand: object.demand.clone(),
            floor,
            previous,
            owned,
        };
        let writer = Writer::new(self.context.clone(), Arc::clone(object), id, ended);
        self.launcher.launch(writer, plan)
    }
}
