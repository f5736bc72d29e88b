//! How a run gets its thread: a reflector of one object, which begins when the run is complete and
//! the run before it has let go (OC-23). The entry accepts the run later. A run that the entry no
//! longer wants is then ended.

use std::convert::Infallible;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::error::{Error, ErrorKind};
use crate::failures::FailureLog;
use crate::guard::guard;
use crate::list_watch::{Api, Selection};
use crate::manager::options::PastLimit;
use crate::manager::registry::Registry;
use crate::manager::watch::check_queue::CheckQueue;
use crate::manager::watch::entry::{WatchEntry, WatchedObject};
use crate::manager::watch::reflector_limit::ReflectorLimit;
use crate::manager::watch::run::{PendingWork, Permit, Run, RunHandle, ThreadRun};
use crate::manager::watch::sources::namespace::{NamespaceSink, NamespaceWatch};
use crate::manager::watch::sources::namespace_table::Namespaces;
use crate::manager::watch::sources::poller::Poller;
use crate::manager::watch::state_machine::{RunId, WatchInput};
use crate::manager::watch::writer::{RunContext, Writer};
use crate::object::{Object, ResourceVersion, Scope, resource_name};
use crate::reflector::{Reflector, ReflectorOptions};
use crate::sync::{Arc, Monitor, Rank};
use crate::worker::WorkerGroup;

/// Gives runs their threads. A model checker or a test puts itself here.
pub(crate) trait Launcher<K: Object>: Send + Sync {
    /// Starts a run that writes to `writer` until it is stopped. Never touches the network itself.
    ///
    /// # Errors
    ///
    /// `Resources` when the system has no thread to give, `Panicked` when code of the program's own
    /// panicked; the writer is dropped then.
    fn launch(
        &self,
        writer: Arc<Writer<K>>,
        options: ReflectorOptions,
    ) -> Result<Box<dyn RunHandle>, Error>;

    /// Starts the watch of a namespace, which writes to `sink` until it is stopped. Never touches
    /// the network itself.
    ///
    /// # Errors
    ///
    /// Those of [`launch`](Self::launch).
    fn launch_namespace(
        &self,
        sink: NamespaceSink<K>,
        options: ReflectorOptions,
    ) -> Result<Box<dyn RunHandle>, Error>;
}

/// The launcher of every manager that is not a model.
impl<K: Object> Launcher<K> for Arc<dyn Api<K>> {
    fn launch(
        &self,
        writer: Arc<Writer<K>>,
        options: ReflectorOptions,
    ) -> Result<Box<dyn RunHandle>, Error> {
        let key = writer.key().clone();
        let source = guard(
            format_args!(
                "the Api's lister_watcher for {} {key}",
                resource_name::<K>()
            ),
            || self.lister_watcher(Scope::object(&key)),
        )?;
        // As in the kubelet's log (OC-6).
        let name = format!("object-\"{}\"/\"{}\"", key.namespace(), key.name());
        Ok(Box::new(Reflector::spawn(name, source, writer, options)?))
    }

    fn launch_namespace(
        &self,
        sink: NamespaceSink<K>,
        options: ReflectorOptions,
    ) -> Result<Box<dyn RunHandle>, Error> {
        let watch = sink.watch();
        let namespace = &*watch.namespace;
        let kind = resource_name::<K>();
        let port = format!("the Api's lister_watcher for {kind} in {namespace}");
        let selection: Arc<dyn Selection> = Arc::<NamespaceWatch<K>>::clone(watch);
        let scope = Scope::namespace(namespace);
        let source = guard(port, || self.lister_watcher_of(scope, selection))?;
        let name = format!("namespace-{namespace:?}");
        Ok(Box::new(Reflector::spawn(name, source, sink, options)?))
    }
}

/// Starts, checks and ends the runs of one manager.
pub(crate) struct Keeper<K: Object> {
    pub(crate) context: RunContext<K>,
    pub(crate) namespaces: Namespaces<K>,
    launcher: Box<dyn Launcher<K>>,
    limit: ReflectorLimit,
    /// For the objects without room, if the program wants them polled.
    pub(crate) poller: Option<Arc<Poller<K>>>,
    failure_log: FailureLog,
    /// The threads that check immutable objects and confirm absences.
    pub(crate) check_threads: WorkerGroup,
}

impl<K: Object> Keeper<K> {
    pub(crate) fn new(
        launcher: Box<dyn Launcher<K>>,
        registry: Arc<Registry<K, WatchEntry<K>>>,
    ) -> Self {
        let options = &registry.options;
        let polls = options.past_limit == PastLimit::Poll;
        // The poller takes the place of one.
        let reflectors_max = options.reflectors_max.saturating_sub(usize::from(polls));
        let context = RunContext {
            registry,
            work: Arc::new(Monitor::ranked(Rank::HOUSEKEEPER, PendingWork::default())),
            checks: Arc::new(Monitor::ranked(Rank::CHECKS, CheckQueue::default())),
        };
        Self {
            limit: ReflectorLimit::new(reflectors_max),
            launcher,
            failure_log: FailureLog::default(),
            check_threads: WorkerGroup::default(),
            namespaces: Namespaces::default(),
            poller: polls.then(|| Poller::new(context.clone())),
            context,
        }
    }

    /// Starts the watch by name that the entry has decided on, or has the object polled. The
    /// watch's list is to be no older than `position`.
    pub(crate) fn start(
        &self,
        object: &WatchedObject<K>,
        id: RunId,
        position: Option<ResourceVersion>,
        by_name: Option<Arc<()>>,
    ) {
        let context = &self.context;
        let launched = self.with_room(by_name, |owned| {
            let (ended, end) = bounded(0);
            let registry = &self.context.registry;
            let now = registry.clock().now();
            let (known, previous) = registry.change(object, |entry| entry.begin_run(end, now));
            let known_version = newest(known, position);
            let start_after = previous.into_iter().chain([owned]).collect();
            self.launch(object, id, (known_version, start_after), Some(ended))
        });
        let launched = launched
            .map(Run::ByName)
            .or_else(|error| self.poll_instead(object, id, error));
        match launched {
            Ok(run) => {
                let late = context
                    .registry
                    .change(object, |entry| entry.accept_run(id, run));
                context.end_all(late);
            }
            Err(error) => {
                let (is_news, action) = context
                    .registry
                    .change(object, |entry| entry.refuse_run(id, error));
                context.notify(object, is_news);
                context.end_all(action.ending);
            }
        }
    }

    /// Starts the successor of a run that is at work: a watch by name, which takes over with its
    /// first list.
    ///
    /// # Errors
    ///
    /// Those of [`Launcher::launch`], and those of [`Permit::reserve`].
    pub(crate) fn launch_successor(
        &self,
        object: &WatchedObject<K>,
        id: RunId,
        by_name: Option<Arc<()>>,
    ) -> Result<Run, Error> {
        let launched = self.with_room(by_name, |owned| {
            let registry = &self.context.registry;
            let known = registry.change(object, |entry| entry.known_version());
            self.launch(object, id, (known, vec![owned]), None)
        });
        launched.map(Run::ByName)
    }

    /// Has the object polled where there is no room for its watch.
    ///
    /// # Errors
    ///
    /// `error`, if that is another one, or objects are not polled.
    pub(crate) fn poll_instead(
        &self,
        object: &WatchedObject<K>,
        id: RunId,
        error: Error,
    ) -> Result<Run, Error> {
        let is_full = error.kind() == ErrorKind::TooManyReflectors;
        let poller = self.poller.as_ref().filter(|_| is_full);
        poller
            .and_then(|poller| self.poll(poller, object, id))
            .ok_or(error)
    }

    fn poll(&self, poller: &Arc<Poller<K>>, object: &WatchedObject<K>, id: RunId) -> Option<Run> {
        let registry = &self.context.registry;
        let now = registry.clock().now();
        registry.change(object, |entry| entry.begin_poll(id, now));
        let writer = Writer::new(self.context.clone(), Arc::clone(object), id, None);
        let handle = poller.attach(writer)?;
        Some(Run::Shared(Box::new(handle)))
    }

    /// The successor was started, or could not be. Returns whether it was.
    pub(crate) fn settle_successor(
        &self,
        object: &WatchedObject<K>,
        id: RunId,
        launched: Result<Run, Error>,
    ) -> bool {
        let context = &self.context;
        let is_started = launched.is_ok();
        let late = match launched {
            Ok(run) => context
                .registry
                .change(object, |entry| entry.keep_successor(id, run)),
            Err(error) => {
                log::debug!("{} is watched or polled as before: {error}", object.key);
                let action = context
                    .registry
                    .change(object, |entry| entry.act(WatchInput::Ended(id)));
                action.ending.into_iter().next()
            }
        };
        context.end_all(late);
        is_started
    }

    /// Has a polled object watched by name. Returns whether there was room.
    pub(crate) fn watch_polled(&self, object: &WatchedObject<K>) -> bool {
        let registry = &self.context.registry;
        let prepared = registry.change(object, |entry| {
            entry.is_polled().then(|| entry.prepare()).flatten()
        });
        let Some(id) = prepared else { return true };
        let by_name = self.namespaces.by_name(object.key.namespace());
        let launched = self.launch_successor(object, id, Some(by_name));
        self.settle_successor(object, id, launched)
    }

    /// Has a watched object polled.
    pub(crate) fn poll_watched(&self, object: &WatchedObject<K>) {
        let Some(poller) = &self.poller else { return };
        let registry = &self.context.registry;
        let Some(id) = registry.change(object, WatchEntry::prepare) else {
            return;
        };
        let run = self.poll(poller, object, id);
        let launched = run.ok_or_else(|| Error::stopped("the poller"));
        self.settle_successor(object, id, launched);
    }

    /// Starts the watch of a namespace.
    ///
    /// # Errors
    ///
    /// Those of [`Launcher::launch_namespace`], and those of [`Permit::reserve`].
    pub(crate) fn launch_namespace(
        &self,
        watch: &Arc<NamespaceWatch<K>>,
    ) -> Result<ThreadRun, Error> {
        let sink = NamespaceSink::new(watch);
        self.with_room(None, |owned| {
            let options = ReflectorOptions {
                waiters: Some(watch.waiters.clone()),
                start_after: vec![owned],
                // A namespace may be large.
                watch_list: true,
                failure_log: Some(self.failure_log.clone()),
                seed: ReflectorOptions::default().seed,
                ..self.context.registry.options.reflector.clone()
            };
            self.launcher.launch_namespace(sink, options)
        })
    }

    /// Starts a run under the limit. Its thread begins once the run is complete: with its handle
    /// and its room.
    fn with_room(
        &self,
        by_name: Option<Arc<()>>,
        launch: impl FnOnce(Receiver<Infallible>) -> Result<Box<dyn RunHandle>, Error>,
    ) -> Result<ThreadRun, Error> {
        let room = Permit::reserve(&self.limit, &self.context.work)?;
        let (_owning, owned) = bounded(0);
        Ok(ThreadRun {
            handle: launch(owned)?,
            _room: room,
            _by_name: by_name,
        })
    }

    fn launch(
        &self,
        object: &WatchedObject<K>,
        id: RunId,
        (known_version, start_after): (Option<ResourceVersion>, Vec<Receiver<Infallible>>),
        ended: Option<Sender<Infallible>>,
    ) -> Result<Box<dyn RunHandle>, Error> {
        let options = ReflectorOptions {
            waiters: Some(object.waiters.clone()),
            known_version,
            start_after,
            failure_log: Some(self.failure_log.clone()),
            // Reflectors of one seed would come back to a server in step.
            seed: ReflectorOptions::default().seed,
            ..self.context.registry.options.reflector.clone()
        };
        let writer = Writer::new(self.context.clone(), Arc::clone(object), id, ended);
        self.launcher.launch(writer, options)
    }
}

/// The later of two versions, the first one where they have no order.
fn newest(one: Option<ResourceVersion>, other: Option<ResourceVersion>) -> Option<ResourceVersion> {
    let other = other.filter(|version| !version.is_unset());
    match (one, other) {
        (Some(one), Some(other)) if one.is_older_than(&other) => Some(other),
        (one, other) => one.or(other),
    }
}
