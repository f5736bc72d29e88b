//! SIGINT and SIGTERM as a message: whoever selects on it ends cleanly. The second one ends the
//! process at once. SIGHUP is another message, for a program that has something to do then.

use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use kubecache::worker::Worker;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

/// So long a signal waits for an agent that starts.
const START_WAIT: Duration = Duration::from_millis(500);

/// Receives a message at the first signal. Dropping it ends its thread; the signals then end the
/// process as ever.
pub(crate) struct Stop {
    pub(crate) came: Receiver<()>,
    runs: Sender<()>,
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
        let (runs, running) = bounded(1);
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
                if signal != SIGHUP
                    && running.recv_timeout(START_WAIT) == Err(RecvTimeoutError::Timeout)
                {
                    // It waits for a file that hangs: nothing has begun that has to end.
                    exit(signal.saturating_add(128));
                }
            }
        })?;
        Ok(Self {
            came,
            runs,
            handle,
            _thread: thread,
        })
    }

    /// Says that the messages are received from now on. Until then a signal ends the process in
    /// half a second.
    pub(crate) fn is_listened_to(&self) {
        let _told_before = self.runs.try_send(()).is_err();
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        // Ends the thread's iteration; the worker then joins it.
        self.handle.close();
    }
}
