//! What ends a run early: a signal, or an output that nobody reads any more.

use std::io;
use std::sync::Arc;

use crossbeam_channel::{Receiver, select};
use k8s_openapi::api::core::v1::Pod;
use kubecache::informer::SharedInformer;
use kubecache::worker::Worker;
use parking_lot::Mutex;

/// Stops an informer when a signal comes or the output fails: whoever waits for the informer then
/// waits no more.
pub(crate) struct Ending {
    cause: Arc<Mutex<Option<Cause>>>,
    _thread: Worker,
}

/// Why a run ended early.
pub(crate) enum Cause {
    Signal,
    OutputClosed(io::Error),
}

impl Ending {
    /// Listens from now on; dropping it ends that.
    pub(crate) fn watch(
        informer: &Arc<SharedInformer<Pod>>,
        signals: &Receiver<()>,
        output: Receiver<io::Error>,
    ) -> io::Result<Self> {
        let cause = Arc::new(Mutex::new(None));
        let found = Arc::clone(&cause);
        let informer = Arc::clone(informer);
        let signals = signals.clone();
        let thread = Worker::spawn("ending", move |stop| {
            let cause = select! {
                recv(signals) -> _ => Cause::Signal,
                recv(output) -> failure => match failure {
                    Ok(error) => Cause::OutputClosed(error),
                    Err(_nobody_prints) => return,
                },
                recv(stop.channel()) -> _ => return,
            };
            *found.lock() = Some(cause);
            informer.stop();
        })?;
        Ok(Self {
            cause,
            _thread: thread,
        })
    }

    /// The cause, if there was one.
    pub(crate) fn cause(&self) -> Option<Cause> {
        self.cause.lock().take()
    }
}
