//! SIGINT and SIGTERM as a message: whoever selects on it ends cleanly. The second one ends the
//! process at once.

use crossbeam_channel::{Receiver, bounded};
use kubecache::worker::Worker;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

/// Receives a message at the first signal. Dropping it ends its thread; the signals then end the
/// process as ever.
pub(crate) struct Stop {
    pub(crate) came: Receiver<()>,
    handle: Handle,
    _thread: Worker,
}

impl Stop {
    /// Takes the two signals over from the system's default, which would end the process at once.
    pub(crate) fn listen() -> std::io::Result<Self> {
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let handle = signals.handle();
        let (send, came) = bounded(1);
        let thread = Worker::spawn("signals", move |_stop| {
            let mut signals = signals.forever();
            if let Some(signal) = signals.next() {
                log::info!("signal {signal}: stopping; another ends the process at once");
                if send.try_send(()).is_err() {
                    log::debug!("nobody waits for it any more");
                }
            }
            if let Some(signal) = signals.next() {
                // As a shell tells of a process that the signal ended.
                std::process::exit(signal.saturating_add(128));
            }
        })?;
        Ok(Self {
            came,
            handle,
            _thread: thread,
        })
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        // Ends the thread's iteration; the worker then joins it.
        self.handle.close();
    }
}
