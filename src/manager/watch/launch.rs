//! How a run gets its thread: a reflector of one object, which begins when the entry owns it and
//! the run before it has let go (OC-23).

use std::convert::Infallible;
use std::fmt;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::entry::{WatchEntry, WatchedObject};
use super::namespace::{NamespaceSink, NamespaceWatch};
use super::namespace_table::Namespaces;
use super::reflector_limit::ReflectorLimit;
use super::runs::{PendingWork, Permit, Run, RunHandle};
use super::state_machine::{RunId, WatchInput};
use super::writer::{RunContext, Writer};
use crate::error::Error;
use crate::guard::guard;
use crate::list_watch::{Api, Selection};
use crate::manager::registry::Registry;
use crate::object::{Object, ResourceVersion, Scope, resource_name};
use crate::reflector::{Reflector, ReflectorOptions};
use crate::sync::{Arc, Monitor, Rank};

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
        writer: Writer<K>,
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
        writer: Writer<K>,
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

/// Starts the runs of one manager.
pub(crate) struct Runs<K: Object> {
    pub(crate) context: RunContext<K>,
    pub(super) namespaces: Namespaces<K>,
    launcher: Box<dyn Launcher<K>>,
    limit: ReflectorLimit,
}

impl<K: Object> fmt::Debug for Runs<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runs").finish_non_exhaustive()
    }
}

impl<K: Object> Runs<K> {
    pub(crate) fn new(
        launcher: Box<dyn Launcher<K>>,
        table: Arc<Registry<K, WatchEntry<K>>>,
    ) -> Self {
        Self {
            limit: ReflectorLimit::new(table.options.reflectors_max),
            launcher,
            namespaces: Namespaces::default(),
            context: RunContext {
                table,
                work: Arc::new(Monitor::ranked(Rank::HOUSEKEEPER, PendingWork::default())),
            },
        }
    }

    /// Starts the watch by name that the entry has decided on. Its list is to be no older than
    /// `position`.
    pub(super) fn start(
        &self,
        object: &WatchedObject<K>,
        id: RunId,
        position: Option<ResourceVersion>,
        by_name: Option<Arc<()>>,
    ) {
        let context = &self.context;
        let launched = self.with_room(by_name, |owned| {
            let (ended, end) = bounded(0);
            let table = &self.context.table;
            let now = table.clock().now();
            let (known, previous) = table.change(object, |entry| entry.begin_run(end, now));
            let known_version = newest(known, position);
            let start_after = previous.into_iter().chain([owned]).collect();
            self.launch(object, id, (known_version, start_after), Some(ended))
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
                let (is_news, action) = context
                    .table
                    .change(object, |entry| entry.refuse_run(id, error));
                context.notify(object, is_news);
                for run in action.ending {
                    context.end(run);
                }
            }
        }
    }

    /// Starts the successor of a run that is at work: a watch by name, which takes over with its
    /// first list.
    pub(super) fn start_successor(&self, object: &WatchedObject<K>, id: RunId, by_name: Arc<()>) {
        let context = &self.context;
        let launched = self.with_room(Some(by_name), |owned| {
            let known = context.table.change(object, |entry| entry.known_version());
            self.launch(object, id, (known, vec![owned]), None)
        });
        let late = match launched {
            Ok(run) => context
                .table
                .change(object, |entry| entry.keep_successor(id, run)),
            Err(error) => {
                log::debug!(
                    "{} stays in the watch of its namespace: {error}",
                    object.key
                );
                let action = context
                    .table
                    .change(object, |entry| entry.act(WatchInput::Ended(id)));
                action.ending.into_iter().next()
            }
        };
        if let Some(run) = late {
            context.end(run);
        }
    }

    /// Starts the watch of a namespace.
    ///
    /// # Errors
    ///
    /// Those of [`Launcher::launch_namespace`], and those of [`Permit::reserve`].
    pub(super) fn launch_namespace(&self, watch: &Arc<NamespaceWatch<K>>) -> Result<Run, Error> {
        let sink = NamespaceSink::new(watch);
        self.with_room(None, |owned| {
            let options = ReflectorOptions {
                waiters: Some(watch.waiters.clone()),
                start_after: vec![owned],
                // A namespace may be large.
                watch_list: true,
                seed: ReflectorOptions::default().seed,
                ..self.context.table.options.reflector.clone()
            };
            self.launcher.launch_namespace(sink, options)
        })
    }

    /// Starts a run under the limit. Its thread begins once the run is owned.
    fn with_room(
        &self,
        by_name: Option<Arc<()>>,
        launch: impl FnOnce(Receiver<Infallible>) -> Result<Box<dyn RunHandle>, Error>,
    ) -> Result<Run, Error> {
        let room = Permit::reserve(&self.limit, &self.context.work)?;
        let (_owning, owned) = bounded(0);
        Ok(Run {
            handle: launch(owned)?,
            _room: Some(room),
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
            // Reflectors of one seed would come back to a server in step.
            seed: ReflectorOptions::default().seed,
            ..self.context.table.options.reflector.clone()
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
