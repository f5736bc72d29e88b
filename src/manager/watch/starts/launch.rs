//! The launcher, which gives each run its thread: a reflector of one object or of one namespace.

use crate::error::Error;
use crate::guard::guard;
use crate::list_watch::{Api, Selection};
use crate::manager::watch::run::RunHandle;
use crate::manager::watch::sources::namespace::{NamespaceSink, NamespaceWatch};
use crate::manager::watch::writer::Writer;
use crate::object::{Object, Scope, resource_name};
use crate::reflector::{Reflector, ReflectorOptions};
use crate::sync::Arc;

/// Starts the threads of runs. Model checks and tests have launchers of their own.
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
        let key = writer.object.key.clone();
        let port = format!(
            "the Api's lister_watcher for {} {key}",
            resource_name::<K>()
        );
        let source = guard(port, || self.lister_watcher(Scope::object(&key)))?;
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
        let scope = if K::resource().is_namespaced() {
            Scope::namespace(namespace)
        } else {
            Scope::all()
        };
        let source = guard(port, || self.lister_watcher_of(scope, selection))?;
        let name = format!("namespace-{namespace:?}");
        Ok(Box::new(Reflector::spawn(name, source, sink, options)?))
    }
}
