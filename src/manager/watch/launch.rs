//! How a run gets its thread: a reflector of one object, which begins when the entry owns it and
//! the run before it has let go (OC-23).

use std::convert::Infallible;
use std::fmt;

use crossbeam_channel::{Receiver, bounded};

use super::entry::{WatchEntry, WatchedObject};
use super::reflector_limit::ReflectorLimit;
use super::runs::{PendingWork, Permit, Run, RunHandle};
use super::state_machine::RunId;
use super::writer::{RunContext, Writer};
use crate::error::Error;
use crate::guard::guard;
use crate::list_watch::Api;
use crate::manager::registry::Registry;
use crate::object::{Object, Scope, resource_name};
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
}

/// Starts the runs of one manager.
pub(crate) struct Runs<K: Object> {
    pub(crate) context: RunContext<K>,
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
            context: RunContext {
                table,
                work: Arc::new(Monitor::ranked(Rank::HOUSEKEEPER, PendingWork::default())),
            },
        }
    }

    /// Starts a run that the entry has decided on.
    pub(crate) fn start(&self, object: &WatchedObject<K>, id: RunId) {
        let context = &self.context;
        let launched = Permit::reserve(&self.limit, &context.work).and_then(|room| {
            let (_owning, owned) = bounded(0);
            Ok(Run {
                handle: self.launch(object, id, owned)?,
                _room: room,
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
        let (known_version, previous) = table.change(object, |entry| entry.begin_run(end, now));
        let options = ReflectorOptions {
            waiters: Some(object.waiters.clone()),
            known_version,
            start_after: previous.into_iter().chain([owned]).collect(),
            // Reflectors of one seed would come back to a server in step.
            seed: ReflectorOptions::default().seed,
            ..table.options.reflector.clone()
        };
        let writer = Writer::new(self.context.clone(), Arc::clone(object), id, ended);
        self.launcher.launch(writer, options)
    }
}
