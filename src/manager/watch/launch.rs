//! How a run gets its thread: a reflector of one object, which begins when the item owns it and the run before it has
//! let go (OC-23).

use std::convert::Infallible;
use std::fmt;

use crossbeam_channel::Receiver;

use super::writer::Writer;
use crate::error::Error;
use crate::guard::guard;
use crate::list_watch::Api;
use crate::manager::metrics::ManagerMetric;
use crate::manager::options::ManagerOptions;
use crate::object::{Object, ObjectKey, ResourceVersion, Scope, resource_name};
use crate::reflector::{Demand, Reflector, ReflectorOptions};
use crate::sync::Arc;

/// What a run starts from.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) demand: Demand,
    /// What is known already: an older answer is asked for once more at the most recent version (B4).
    pub(crate) floor: Option<ResourceVersion>,
    /// Closed when the run before has ended.
    pub(crate) previous: Option<Receiver<Infallible>>,
    /// Closed when the item owns the run's thread, so that whatever the run brings can end it (B6).
    pub(crate) owned: Receiver<Infallible>,
}

/// Gives runs their threads. A model checker or a test puts itself here.
pub(crate) trait Launcher<K: Object>: Send + Sync + fmt::Debug {
    /// Starts a run that writes to `writer` until it is stopped. Never touches the network itself.
    ///
    /// # Errors
    ///
    /// `Resources` when the system has no thread to give, `Panicked` when code of the program's own
    /// panicked; the writer is
    /// dropped then.
    fn launch(&self, writer: Writer<K>, plan: Plan) -> Result<Box<dyn RunHandle>, Error>;
}

/// A run's thread, for its owner.
pub(crate) trait RunHandle: Send + fmt::Debug {
    /// Asks the thread to end; returns at once.
    fn stop(&self);

    /// Waits for its end; returns the text of its panic, if it panicked.
    fn join(self: Box<Self>) -> Result<(), String>;
}

impl RunHandle for Reflector {
    fn stop(&self) {
        Self::stop(self);
    }

    fn join(self: Box<Self>) -> Result<(), String> {
        Self::join(*self)
    }
}

/// The launcher of every manager that is not a model.
pub(crate) struct Reflectors<K: Object> {
    pub(crate) api: Arc<dyn Api<K>>,
    pub(crate) options: ManagerOptions,
}

impl<K: Object> fmt::Debug for Reflectors<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reflectors").finish_non_exhaustive()
    }
}

impl<K: Object> Launcher<K> for Reflectors<K> {
    fn launch(&self, writer: Writer<K>, plan: Plan) -> Result<Box<dyn RunHandle>, Error> {
        let key = writer.key().clone();
        let port = format_args!(
            "the Api's lister_watcher for {} {key}",
            resource_name::<K>()
        );
        let source = guard(port, || self.api.lister_watcher(Scope::object(&key)))?;
        let mut options = ReflectorOptions::default();
        options.clock = self.options.clock.clone();
        options.watch_timeout_min = self.options.watch_timeout_min;
        if let Some(limit) = self.options.idle_limit {
            options.idle_limit = limit;
        }
        options.demand = Some(plan.demand);
        options.start_floor = plan.floor;
        options.start_after = plan.previous.into_iter().chain([plan.owned]).collect();
        // One small list is as cheap as a stream of one object, and has no bookmark to wait for (B8).
        options.watch_list = false;
        options.on_error.clone_from(&self.options.on_error);
        let metrics = self.options.metrics.as_ref();
        options.metrics = metrics.map(|metrics| metrics.of_part(ManagerMetric::Reflector));
        Ok(Box::new(Reflector::spawn(
            name(&key),
            source,
            writer,
            options,
        )?))
    }
}

/// `object-"ns"/"name"`, as in the kubelet's log (OC-6).
fn name(key: &ObjectKey) -> String {
    format!("object-\"{}\"/\"{}\"", key.namespace(), key.name())
}
