//! SIGINT and SIGTERM as a message: whoever selects on it ends cleanly. The second one ends the
//! process at once. SIGHUP is another message, for a program that has something to do then.

use crossbeam_channel::{Receiver, Sender, bounded};
use kubecache::worker::Worker;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

/// Receives a message at the first signal. Dropping it ends its thread; the signals then end the
/// process as ever.
pub(crate) struct Stop {
    pub(crate) came: Receiver<()>,
    handle: Handle,
    _thread: Worker,
}

impl Stop {
    /// Takes the signals over from the system's default, which would end the process at once. At
    /// the second SIGINT or SIGTERM, `exit` does that, with the code it is given.
    pub(crate) fn listen(
        hang_ups: Option<Sender<()>>,
        exit: fn(i32) -> !,
    ) -> std::io::Result<Self> {
        let hang_up = hang_ups.is_some().then_some(SIGHUP);
        let mut signals = Signals::new([SIGINT, SIGTERM].into_iter().chain(hang_up))?;
        let handle = signals.handle();
        let (send, came) = bounded(1);
        let thread = Worker::spawn("signals", move |_stop| {
            let mut stops = false;
            for signal in signals.forever() {
                let heard = match &hang_ups {
                    Some(hang_ups) if signal == SIGHUP => hang_ups,
                    // As a shell tells of a process that the signal ended.
                    _ if stops => exit(signal.saturating_add(128)),
                    _ => {
                        log::info!("signal {signal}: stopping; another ends the process at once");
                        stops = true;
                        &send
                    }
                };
                // A full channel holds the message this one would have been.
                let _full = heard.try_send(()).is_err();
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
