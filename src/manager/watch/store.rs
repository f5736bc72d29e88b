//! The store of the strategy `Watch`: one entry per referenced object, read from memory, kept by a
//! watch of its own (OC-1..OC-29).

use super::entry::{WatchAction, WatchEntry, WatchedObject};
use super::keeper::Keeper;
use super::sources::poller::POLLS_MAX;
use super::starts::launch::Launcher;
use super::state_machine::{
    CheckState, RunId, StopReason, WatchEffect, WatchInput, WatchMachine, WatchState,
};
use crate::clock::{Coarse, Deadline};
use crate::error::{Error, ErrorKind};
use crate::manager::cached::Cached;
use crate::manager::consistent_reads::read_from_server;
use crate::manager::entry::content::ReadPosition;
use crate::manager::entry::object_entry::EntryState as _;
use crate::manager::kinds::cache_name;
use crate::manager::references::{Affected, Owner, ReferenceChange};
use crate::manager::registry::Registry;
use crate::manager::report::NamespaceReport;
use crate::manager::strategy::{ReferencedObjects, Strategy};
use crate::object::{Object, ResourceVersion, StoredObject, resource_name};
use crate::reflector::WaiterGuard;
use crate::sync::Arc;
use crate::sync::atomic::AtomicUsize;
use crate::worker::{StopToken, Worker, WorkerGroup};

/// The store of one manager, and its threads. Dropping it stops and joins all threads but those
/// that a shutdown has named as late.
pub(crate) struct WatchStore<K: Object> {
    keeper: Arc<Keeper<K>>,
    /// The one thread, or none in a model.
    housekeeper: WorkerGroup,
    /// Its threads, or none where no object is polled.
    poller: WorkerGroup,
}

impl<K: Object> WatchStore<K> {
    /// A store without references. Starts the housekeeper's thread; touches no network.
    ///
    /// # Errors
    ///
    /// `Resources` when the system has no thread to give.
    pub(crate) fn new(
        launcher: Box<dyn Launcher<K>>,
        registry: Arc<Registry<K, WatchEntry<K>>>,
    ) -> Result<Self, Error> {
        let store = Self::unattended(launcher, registry);
        let keeper = Arc::clone(&store.keeper);
        let maintain = move |stop: &StopToken| keeper.maintain(stop);
        start_thread::<K>(&store.housekeeper, ("hk", "housekeeper"), maintain)?;
        if let Some(poller) = &store.keeper.starts.poller {
            for _ in 0..POLLS_MAX {
                let poller = Arc::clone(poller);
                start_thread::<K>(&store.poller, ("po", "poller"), move |_| poller.work())?;
            }
        }
        Ok(store)
    }

    /// A store without a housekeeper, for models that start no thread.
    pub(crate) fn unattended(
        launcher: Box<dyn Launcher<K>>,
        registry: Arc<Registry<K, WatchEntry<K>>>,
    ) -> Self {
        Self {
            keeper: Arc::new(Keeper::new(launcher, registry)),
            housekeeper: WorkerGroup::default(),
            poller: WorkerGroup::default(),
        }
    }

    /// A store whose threads' work is done by the caller.
    #[cfg(feature = "testing")]
    pub(crate) fn stepped(
        launcher: Box<dyn Launcher<K>>,
        registry: Arc<Registry<K, WatchEntry<K>>>,
    ) -> Self {
        let mut keeper = Keeper::new(launcher, registry);
        keeper.is_stepped = true;
        Self {
            keeper: Arc::new(keeper),
            housekeeper: WorkerGroup::default(),
            poller: WorkerGroup::default(),
        }
    }

    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn keeper(&self) -> &Arc<Keeper<K>> {
        &self.keeper
    }

    /// If the watch of the object fails, the read shortens its backoff (B10).
    fn expedite(&self, namespace: &str, name: &str, cached: &Cached<K>) {
        if cached.last_error().is_some()
            && let Ok(object) = self.registry().find(namespace, name)
        {
            expedite_object(&object);
        }
    }

    fn wait(&self, object: &WatchedObject<K>, deadline: Deadline) -> Result<Cached<K>, Error> {
        let (key, clock) = (&object.key, self.registry().clock());
        let mut waiting: Option<WaiterGuard> = None;
        let mut first = true;
        loop {
            let entry = object.state.lock();
            // Each read tries once to start a watch that could not start before. It always starts
            // one that was stopped as idle meanwhile, or that awaits the list of its namespace.
            let has_no_run = matches!(
                entry.state(),
                WatchState::Stopped(StopReason::Idle | StopReason::Awaiting)
            );
            if first || has_no_run {
                first = false;
                drop(entry);
                self.keeper
                    .act(object, |entry| entry.on_wanted(clock.now()));
                continue;
            }
            let patience = deadline.earlier(entry.patience());
            let patient = !clock.has_passed(patience);
            if entry.answer(key, clock, patient).is_some() {
                drop(entry);
                let mut answer = None;
                self.keeper.act(object, |entry| {
                    answer = entry.answer(key, clock, patient);
                    let given = matches!(answer, Some(Ok(_))).then(|| entry.on_given());
                    given.unwrap_or_else(WatchAction::nothing)
                });
                let Some(answer) = answer else { continue };
                if answer.is_err() {
                    expedite_object(object);
                    self.keeper.context.confirm_later(object);
                }
                return answer;
            }
            if clock.has_passed(deadline) {
                let answer = entry.late(key, clock);
                // Under the lock, so that no later state counts this reader as waiting.
                drop(waiting);
                return answer;
            }
            if waiting.is_none() {
                drop(entry);
                waiting = Some(object.waiters.wait());
                continue;
            }
            entry.await_news();
            let checking = entry.state() == WatchState::Rechecking(CheckState::First);
            let until = if checking { patience } else { deadline };
            drop(clock.wait_until(&object.state, entry, until));
        }
    }

    pub(crate) fn registry(&self) -> &Registry<K, WatchEntry<K>> {
        &self.keeper.context.registry
    }

    /// The entry of the object; counts as a read of it.
    ///
    /// # Errors
    ///
    /// `NotRegistered`.
    pub(crate) fn entry_to_read(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<WatchedObject<K>, Error> {
        let object = self.registry().find(namespace, name)?;
        let now = self.registry().clock().coarse();
        object.state.lock().note_read(now);
        Ok(object)
    }

    /// Stores the answer of a read that asked the server. Returns it, or a newer state that came in
    /// meanwhile.
    pub(crate) fn complete_read(
        &self,
        object: &WatchedObject<K>,
        read: &ReadPosition,
        found: Result<Arc<StoredObject<K>>, Error>,
    ) -> Result<Cached<K>, Error> {
        let (mut found, absent) = match found {
            Ok(found) => (Some(found), None),
            Err(error) if error.is_not_found() => (None, Some(error)),
            Err(error) => return Err(error),
        };
        let clock = self.registry().clock();
        let not_found = || Error::not_found(&resource_name::<K>(), object.key.name());
        let incoming = found.clone();
        let taken = self.registry().take_in(object, incoming.as_ref(), |entry| {
            let (is_news, action) = entry.found(read, &mut found);
            let action = action.or(|| entry.on_given());
            let result = match (absent, entry.content.undecodable()) {
                // This was true while the read was in flight.
                (Some(error), _) => Err(error),
                (None, Some(undecodable)) => Err(undecodable.clone()),
                (None, None) => entry.content.object().map(Arc::clone).ok_or_else(not_found),
            };
            (is_news, result, action)
        });
        let (is_news, result, action) = taken;
        self.keeper.context.notify(object, is_news);
        self.keeper.perform(object, action);
        result.map(|object| Cached::confirmed(object, read.began, clock))
    }
}

impl<K: Object> Strategy<K> for WatchStore<K> {
    fn entries(&self) -> Arc<dyn ReferencedObjects> {
        Arc::<Registry<K, WatchEntry<K>>>::clone(&self.keeper.context.registry)
    }

    #[cfg(feature = "snapshot")]
    fn kept_objects(&self) -> Option<Arc<dyn crate::manager::strategy::KeptObjects<K>>> {
        Some(Arc::<Registry<K, WatchEntry<K>>>::clone(
            &self.keeper.context.registry,
        ))
    }

    fn shared_watches(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.keeper.context.namespace_watches)
    }

    /// Starts, stops and checks watches as the change requires (OC-2, OC-3).
    fn change_references(&self, owner: &Owner, change: ReferenceChange) {
        let registry = self.registry();
        let make = || {
            // A shutdown raises its stop before it looks for entries under the references' lock,
            // which is held here (OC-25).
            let machine = if registry.stop.token().is_stopped() {
                WatchMachine::shut_down()
            } else {
                WatchMachine::starting()
            };
            WatchEntry::new(registry.kind, machine, registry.clock())
        };
        let now = registry.clock().now();
        let react = |affected: &Affected<_>, entry: &mut WatchEntry<K>| match affected {
            Affected::Made(_) if entry.is_at_work() => WatchEffect::Start(RunId::FIRST).into(),
            Affected::Shared(_) if registry.options.recheck_immutable => {
                entry.try_again(WatchInput::Referenced, now)
            }
            Affected::Made(_) | Affected::Shared(_) => WatchAction::nothing(),
            Affected::Released(_) => entry.act(WatchInput::Released),
        };
        for (affected, action) in registry.change_references((owner, change), false, make, react) {
            let object = affected.entry();
            if matches!(action.effect, WatchEffect::Start(RunId::FIRST)) {
                registry.sow(object);
            }
            self.keeper.perform(object, action);
        }
    }

    /// From memory, else after a wait (OC-8, B1).
    fn get(
        &self,
        namespace: &str,
        name: &str,
        deadline: &dyn Fn() -> Deadline,
    ) -> Result<Cached<K>, Error> {
        let now = self.registry().clock().coarse();
        let mark = |read_at: &mut Coarse| {
            *read_at = now;
            true
        };
        let ready = self.registry().read_cache.read(namespace, name, mark);
        if let Some(cached) = ready.filter(|ready| !ready.has_expired()) {
            self.expedite(namespace, name, &cached);
            return Ok(cached);
        }
        let object = self.entry_to_read(namespace, name)?;
        let cached = self.wait(&object, deadline())?;
        if cached.is_stale() {
            self.expedite(namespace, name, &cached);
        }
        Ok(cached)
    }

    fn get_cached(&self, namespace: &str, name: &str) -> Result<Option<Cached<K>>, Error> {
        let object = self.entry_to_read(namespace, name)?;
        let clock = self.registry().clock();
        let mut cached = None;
        self.keeper.act(&object, |entry| {
            cached = entry.cached_copy(clock);
            // The reader wants the watch to run (OC-8) but does not wait for it, so the list of the
            // namespace will do.
            let wanted = if entry.is_awaiting() {
                WatchAction::nothing()
            } else {
                entry.on_wanted(clock.now())
            };
            wanted.or(|| entry.on_given())
        });
        match &cached {
            Some(cached) => self.expedite(namespace, name, cached),
            None => self.keeper.context.confirm_later(&object),
        }
        Ok(cached)
    }

    fn get_at_least(
        &self,
        namespace: &str,
        name: &str,
        version: &ResourceVersion,
        deadline: Deadline,
    ) -> Result<Cached<K>, Error> {
        let object = self.entry_to_read(namespace, name)?;
        let answer = read_from_server(
            self.registry(),
            &object,
            version,
            deadline,
            |read, found, _| self.complete_read(&object, read, found),
        );
        if answer.is_ok() {
            self.keeper.act(&object, WatchEntry::on_given);
        } else {
            self.keeper.context.confirm_later(&object);
        }
        answer
    }

    fn housekeeping_failure(&self) -> Option<Error> {
        self.keeper.context.work.lock().failure.clone()
    }

    fn namespace_reports(&self) -> Vec<NamespaceReport> {
        self.keeper.starts.namespace_reports()
    }

    /// Starts no watch from now on (OC-25). The threads end within milliseconds.
    fn stop(&self) {
        self.registry().stop.stop();
        self.keeper.starts.close_namespaces();
        let (registry, context) = (self.registry(), &self.keeper.context);
        let objects = registry.entries();
        let shut_down = |entry: &mut WatchEntry<K>| entry.act(WatchInput::ShutDown);
        let ending = objects
            .iter()
            .map(|object| registry.change(object, shut_down).ending);
        // In one batch: no thread is joined before all stops are raised.
        context.end_all(ending.flatten().collect::<Vec<_>>());
        for object in &objects {
            context.notify(object, true);
        }
        if let Some(poller) = &self.keeper.starts.poller {
            poller.close();
        }
    }

    fn shutdown(&self, deadline: Deadline) -> Result<(), Error> {
        self.stop();
        let mut late = self.keeper.join_checks(deadline);
        late.extend(self.poller.join(self.registry().clock(), deadline));
        // It joins the stopped runs, then ends.
        self.housekeeper.stop();
        let clock = self.registry().clock();
        let housekeeper = self.housekeeper.join(clock, deadline);
        if !housekeeper.is_empty() {
            let runs = self.keeper.context.work.lock().late();
            late.extend(if runs.is_empty() { housekeeper } else { runs });
        }
        if late.is_empty() {
            return Ok(());
        }
        let (cache, threads) = (cache_name::<K>(), late.join(", "));
        let text = format!(
            "timed out waiting for {cache}: held up by a hook or by a call of the source: {threads}"
        );
        Err(Error::new(ErrorKind::Timeout, text))
    }

    #[cfg(test)]
    fn watch_store(&self) -> Option<&WatchStore<K>> {
        Some(self)
    }
}

impl<K: Object> Drop for WatchStore<K> {
    fn drop(&mut self) {
        self.stop();
        self.poller.close();
        // A check may start a run, which the housekeeper joins; the housekeeper may start a check.
        self.keeper.close_checks();
        self.housekeeper.close();
        self.keeper.close_checks();
    }
}

/// Starts a thread of the manager, of this prefix and title.
fn start_thread<K: Object>(
    group: &WorkerGroup,
    (prefix, title): (&str, &str),
    body: impl FnOnce(&StopToken) + Send + 'static,
) -> Result<(), Error> {
    let worker = Worker::spawn(format!("{prefix}-{}", resource_name::<K>()), body);
    let whose = format!("the {title} of {}", cache_name::<K>());
    group.add(worker.map_err(Error::no_thread(&whose))?);
    Ok(())
}

/// Shortens the backoff of the object's watch, if it fails (B10).
fn expedite_object<K: Object>(object: &WatchedObject<K>) {
    object.waiters.expedite();
    object.state.lock().expedite_shared();
}
