//! SIGINT and SIGTERM as a message: whoever selects on it ends cleanly.

use crossbeam_channel::{Receiver, bounded};
use kubecache::worker::Worker;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

/// Receives one message per signal. Dropping it ends its thread; the signals then end the process as ever.
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
            for signal in signals.forever() {
                log::info!("signal {signal}: stopping");
                if send.try_send(()).is_err() {
                    log::debug!("a stop is under way already");
                }
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
