//! The runs of a manager of the world: real reflectors, which the world steps instead of a thread.

use std::convert::Infallible;
use std::time::Duration;

use crossbeam_channel::Receiver;
use k8s_openapi::api::core::v1::ConfigMap;

use super::link::Link;
use super::stepped::{Steppable, SteppedReflector};
use crate::error::Error;
use crate::manager::watch::run::RunHandle;
use crate::manager::watch::sources::namespace::NamespaceSink;
use crate::manager::watch::starts::launch::Launcher;
use crate::manager::watch::writer::Writer;
use crate::object::{ObjectKey, Scope};
use crate::policy::Chance;
use crate::reflector::driver::ReflectorDriver;
use crate::reflector::guarded::Guarded;
use crate::reflector::{ReflectorOptions, Sink};
use crate::sync::{Arc, Mutex};
use crate::worker::StopSource;

/// The run of one object, or the watch of a namespace.
pub(super) struct RunSlot {
    /// `None` for the watch of a namespace.
    pub(super) key: Option<ObjectKey>,
    /// `None` while it is stepped, and after its end.
    pub(super) reflector: Option<Box<dyn Steppable>>,
    /// The runs that must end before it begins.
    pub(super) start_after: Vec<Receiver<Infallible>>,
    pub(super) stop: StopSource,
    pub(super) has_ended: bool,
}

pub(super) type RunSlots = Arc<Mutex<Vec<Arc<Mutex<RunSlot>>>>>;

/// Makes runs that the world steps.
pub(super) struct WorldLauncher {
    pub(super) link: Link,
    pub(super) latency: Duration,
    pub(super) slots: RunSlots,
    pub(super) seeds: Mutex<Chance>,
}

impl WorldLauncher {
    fn run<S: Sink<ConfigMap> + Send + 'static>(
        &self,
        (key, link): (Option<ObjectKey>, Link),
        sink: S,
        mut options: ReflectorOptions,
    ) -> Result<Box<dyn RunHandle>, Error> {
        options.seed = Some(self.seeds.lock().below(u64::MAX));
        let start_after = std::mem::take(&mut options.start_after);
        let source = Arc::new(Guarded::new("sim", Arc::new(link))?);
        let driver = ReflectorDriver::new("sim".to_owned(), source, sink, options, Arc::default())?;
        let reflector = SteppedReflector::new(driver, self.latency);
        let slot = RunSlot {
            key,
            stop: reflector.stop_source(),
            reflector: Some(Box::new(reflector)),
            start_after,
            has_ended: false,
        };
        let slot = Arc::new(Mutex::new(slot));
        self.slots.lock().push(Arc::clone(&slot));
        Ok(Box::new(SteppedRun(slot)))
    }
}

impl Launcher<ConfigMap> for WorldLauncher {
    fn launch(
        &self,
        writer: Arc<Writer<ConfigMap>>,
        options: ReflectorOptions,
    ) -> Result<Box<dyn RunHandle>, Error> {
        let key = writer.object.key.clone();
        let link = self.link.with_scope(Scope::object(&key));
        self.run((Some(key), link), writer, options)
    }

    fn launch_namespace(
        &self,
        sink: NamespaceSink<ConfigMap>,
        options: ReflectorOptions,
    ) -> Result<Box<dyn RunHandle>, Error> {
        let watch = Arc::clone(sink.watch());
        let scope = Scope::namespace(&*watch.namespace);
        self.run((None, self.link.selecting(scope, watch)), sink, options)
    }
}

/// The handle by which the manager ends a run.
struct SteppedRun(Arc<Mutex<RunSlot>>);

impl RunHandle for SteppedRun {
    fn thread_name(&self) -> String {
        "rf-sim".to_owned()
    }

    fn is_finished(&self) -> bool {
        self.0.lock().has_ended
    }

    fn stop(&self) {
        let stop = self.0.lock().stop.clone();
        stop.stop();
    }

    fn join(self: Box<Self>) {
        self.stop();
        let mut slot = self.0.lock();
        slot.has_ended = true;
        let reflector = slot.reflector.take();
        drop(slot);
        drop(reflector);
    }
}
