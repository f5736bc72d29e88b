//! Whether a shared informer was started, and the parts to start it from.

use super::sink::InformerSink;
use crate::hooks::Hook;
use crate::informer::InformerMetric;
use crate::list_watch::ListerWatcher;
use crate::object::Object;
use crate::reflector::ReflectorOptions;
use crate::sync::Arc;
use crate::worker::Task;

/// Whether an informer was started. Its thread and whether it is stopped are beside this.
pub(super) enum InformerPhase<K: Object> {
    /// It was not started.
    Ready(Box<StartParts<K>>),
    /// A thread starts it, which calls code of the user's.
    Starting(Task),
    /// It was started or stopped.
    Over,
}

/// The parts that an informer is started from.
pub(super) struct StartParts<K: Object> {
    pub(super) source: Arc<dyn ListerWatcher<K>>,
    pub(super) sink: InformerSink<K>,
    pub(super) options: ReflectorOptions,
    pub(super) metrics: Option<Hook<InformerMetric>>,
}
