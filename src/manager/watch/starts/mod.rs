//! Starts the runs of one manager: by name, with the watch of a namespace, or as polls where there
//! is no room.

mod by_budget;
mod by_namespace;
pub(crate) mod launch;

use std::convert::Infallible;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::error::{Error, ErrorKind};
use crate::failures::FailureLog;
use crate::manager::options::{PastLimit, WatchScope};
use crate::manager::watch::context::RunContext;
use crate::manager::watch::entry::WatchedObject;
use crate::manager::watch::reflector_limit::ReflectorLimit;
use crate::manager::watch::run::{Permit, Run, RunHandle, Start, ThreadRun};
use crate::manager::watch::sources::namespace::{NamespaceSink, NamespaceWatch};
use crate::manager::watch::sources::namespace_table::Namespaces;
use crate::manager::watch::sources::poller::Poller;
use crate::manager::watch::state_machine::{RunId, WatchInput};
use crate::manager::watch::writer::Writer;
use crate::object::{Object, ResourceVersion};
use crate::reflector::{ReflectorOptions, Waiters};
use crate::sync::Arc;
use launch::Launcher;

/// Starts the runs of one manager.
///
/// A run begins once it is complete and the run before it has let go of the object (OC-23). The
/// entry accepts it later. A run that the entry no longer wants is then ended.
pub(crate) struct Starts<K: Object> {
    context: RunContext<K>,
    launcher: Box<dyn Launcher<K>>,
    limit: ReflectorLimit,
    namespaces: Namespaces<K>,
    /// Polls the objects without room, if the program wants that.
    pub(crate) poller: Option<Arc<Poller<K>>>,
    failure_log: FailureLog,
}

impl<K: Object> Starts<K> {
    pub(crate) fn new(launcher: Box<dyn Launcher<K>>, context: RunContext<K>) -> Self {
        let options = &context.registry.options;
        let polls = options.past_limit == PastLimit::Poll;
        // The poller takes the place of one.
        let watches_max = options.watches_max.saturating_sub(usize::from(polls));
        Self {
            launcher,
            limit: ReflectorLimit::new(watches_max),
            namespaces: Namespaces::default(),
            poller: polls.then(|| Poller::new(context.clone())),
            failure_log: FailureLog::default(),
            context,
        }
    }

    /// Starts a run that the entry has decided on.
    pub(crate) fn begin(&self, object: &WatchedObject<K>, id: RunId) {
        match self.context.registry.options.watch_scope {
            WatchScope::ByName => self.start(object, id, None, None),
            WatchScope::Namespace { above } => self.begin_in_namespace(object, id, above),
        }
    }

    /// Starts the watch by name that the entry has decided on, or polls the object instead. The
    /// watch's list is not older than `position`.
    fn start(
        &self,
        object: &WatchedObject<K>,
        id: RunId,
        position: Option<ResourceVersion>,
        by_name: Option<Arc<()>>,
    ) {
        let (context, registry) = (&self.context, &self.context.registry);
        let launched = self.with_room(by_name, |owned| {
            let (ended, end) = bounded(0);
            let now = registry.clock().now();
            let limit = registry.options.reflector.idle_limit;
            let (known, previous) = registry.change(object, |it| it.begin_run(end, now, limit));
            let known_version = newest(known, position);
            let start_after = previous.into_iter().chain([owned]).collect();
            self.launch(object, id, (known_version, start_after), Some(ended))
        });
        let run = launched.map(Run::ByName);
        match run.or_else(|error| self.poll_instead(object, id, error)) {
            Ok(run) => context.end_all(registry.change(object, |entry| entry.accept_run(id, run))),
            Err(error) => {
                let (is_news, action) =
                    registry.change(object, |entry| entry.refuse_run(id, error));
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
    fn launch_successor(&self, object: &WatchedObject<K>, id: RunId) -> Result<Run, Error> {
        let by_name = self.namespaces.by_name(object.key.namespace());
        let launched = self.with_room(Some(by_name), |owned| {
            let known = object.state.lock().known_version();
            self.launch(object, id, (known, vec![owned]), None)
        });
        launched.map(Run::ByName)
    }

    /// Keeps the successor that was started, or forgets the one that could not be. Returns whether
    /// it was started.
    fn settle_successor(
        &self,
        object: &WatchedObject<K>,
        id: RunId,
        launched: Result<Run, Error>,
    ) -> bool {
        let (context, registry) = (&self.context, &self.context.registry);
        match launched {
            Ok(run) => {
                let late = registry.change(object, |entry| entry.keep_successor(id, run));
                context.end_all(late);
                true
            }
            Err(error) => {
                log::debug!("{} is watched or polled as before: {error}", object.key);
                context.act(object, |entry| entry.act(WatchInput::Ended(id)));
                false
            }
        }
    }

    /// Polls the object if there was no room for its watch.
    ///
    /// # Errors
    ///
    /// `error`, if that is another one, or objects are not polled.
    fn poll_instead(
        &self,
        object: &WatchedObject<K>,
        id: RunId,
        error: Error,
    ) -> Result<Run, Error> {
        let is_full = error.kind() == ErrorKind::TooManyReflectors;
        let run = is_full.then(|| self.poll(object, id)).flatten();
        run.ok_or(error)
    }

    /// The run that polls the object. `None` if objects are not polled, or no longer.
    fn poll(&self, object: &WatchedObject<K>, id: RunId) -> Option<Run> {
        let (poller, registry) = (self.poller.as_ref()?, &self.context.registry);
        let now = registry.clock().now();
        registry.change(object, |entry| entry.begin_poll(id, now));
        let writer = Writer::new(self.context.clone(), Arc::clone(object), id, None);
        let handle = poller.attach(writer)?;
        Some(Run::Shared(Box::new(handle)))
    }

    /// Starts the watch of a namespace.
    ///
    /// # Errors
    ///
    /// Those of [`Launcher::launch_namespace`], and those of [`Permit::reserve`].
    fn launch_namespace(&self, watch: &Arc<NamespaceWatch<K>>) -> Result<ThreadRun, Error> {
        let sink = NamespaceSink::new(watch);
        self.with_room(None, |owned| {
            let options = self.options(&watch.waiters, vec![owned]);
            self.launcher.launch_namespace(sink, options)
        })
    }

    /// Starts a run under the limit. Its thread begins once the run has its handle and its room.
    fn with_room(
        &self,
        by_name: Option<Arc<()>>,
        launch: impl FnOnce(Receiver<Infallible>) -> Result<Box<dyn RunHandle>, Error>,
    ) -> Result<ThreadRun, Error> {
        let room = Permit::reserve(&self.limit, &self.context.work)?;
        let (_owning, owned) = bounded(0);
        let _start = Start::begin(&self.context.work);
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
        let mut options = self.options(&object.waiters, start_after);
        options.known_version = known_version;
        let writer = Writer::new(self.context.clone(), Arc::clone(object), id, ended);
        self.launcher.launch(writer, options)
    }

    fn options(
        &self,
        waiters: &Waiters,
        start_after: Vec<Receiver<Infallible>>,
    ) -> ReflectorOptions {
        ReflectorOptions {
            waiters: Some(waiters.clone()),
            start_after,
            failure_log: Some(self.failure_log.clone()),
            // Reflectors with one seed would return to a server in step.
            seed: None,
            ..self.context.registry.options.reflector.clone()
        }
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
