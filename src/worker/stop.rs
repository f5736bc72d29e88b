//! The stop of a worker: a flag, a channel that closes, and the wake-up of the thread's blocking
//! call.

use std::convert::Infallible;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::clock::{Clock, Deadline, IntoDeadline};
use crate::sync::{
    Arc, Monitor, Rank, Wake,
    atomic::{AtomicBool, Ordering},
};

/// Why [`StopToken::wait_until`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "a wait for a stop has these two ends"
)]
pub enum WaitEnd {
    /// The stop was raised.
    Stopped,
    /// The deadline passed first.
    DeadlinePassed,
}

#[derive(Debug)]
struct Shared {
    stopped: AtomicBool,
    state: Arc<Monitor<StopState>>,
    closed: Receiver<Infallible>,
}

struct StopState {
    /// The stop drops it, which closes the channel.
    open: Option<Sender<Infallible>>,
    wakes: Vec<(u64, Arc<dyn Wake>)>,
    next_id: u64,
}

impl std::fmt::Debug for StopState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StopState")
            .field("stopped", &self.open.is_none())
            .finish_non_exhaustive()
    }
}

/// The side that asks a thread to stop. Dropping it stops nothing; the owner of a thread is its
/// [`Worker`](super::Worker).
#[derive(Clone, Debug)]
pub struct StopSource(Arc<Shared>);

/// The side that observes a stop. Cheap to clone.
#[derive(Clone, Debug)]
pub struct StopToken(Arc<Shared>);

impl Default for StopSource {
    fn default() -> Self {
        Self::new()
    }
}

impl StopSource {
    /// Makes a stop that is not raised.
    pub fn new() -> Self {
        let (open, closed) = bounded(0);
        let state = StopState {
            open: Some(open),
            wakes: Vec::new(),
            next_id: 0,
        };
        Self(Arc::new(Shared {
            stopped: AtomicBool::new(false),
            state: Arc::new(Monitor::ranked(Rank::STOP, state)),
            closed,
        }))
    }

    /// Returns a token that observes this stop.
    pub fn token(&self) -> StopToken {
        StopToken(Arc::clone(&self.0))
    }

    /// Raises the stop, which ends every wait on its tokens. Idempotent; returns at once.
    pub fn stop(&self) {
        let wakes = {
            let mut state = self.0.state.lock();
            self.0.stopped.store(true, Ordering::SeqCst);
            state.open = None;
            std::mem::take(&mut state.wakes)
        };
        self.0.state.notify_all();
        for (_, wake) in wakes {
            super::call(&*wake);
        }
    }
}

impl StopToken {
    /// Makes a token that is never stopped, for calls that need no stop.
    pub fn never() -> Self {
        StopSource::new().token()
    }

    /// Whether the stop was raised.
    pub fn is_stopped(&self) -> bool {
        self.0.stopped.load(Ordering::SeqCst)
    }

    /// Returns a channel for `select!`, which carries nothing and closes when the stop is raised.
    pub fn channel(&self) -> &Receiver<Infallible> {
        &self.0.closed
    }

    /// Blocks until the stop is raised.
    pub fn wait(&self) {
        self.wait_until(&Clock::system(), Deadline::NEVER);
    }

    /// Blocks until the stop is raised or `deadline` has passed: the crate's only way to sleep.
    pub fn wait_until(&self, clock: &Clock, deadline: impl IntoDeadline) -> WaitEnd {
        let deadline = deadline.into_deadline(clock);
        let state = self.0.state.lock();
        let is_stopped = |state: &mut StopState| state.open.is_none().then_some(());
        match clock.wait_for(&self.0.state, state, deadline, is_stopped) {
            (Some(()), _) => WaitEnd::Stopped,
            (None, _) => WaitEnd::DeadlinePassed,
        }
    }

    /// Registers a wake-up for the thread that is about to block. Drop the registration after the
    /// wait.
    ///
    /// If the stop was raised already, this calls `wake` at once, so no stop is lost between a
    /// check and a wait.
    pub fn register(&self, wake: &Arc<dyn Wake>) -> WakeRegistration {
        let mut state = self.0.state.lock();
        let id = state.open.is_some().then_some(state.next_id);
        if let Some(id) = id {
            state.next_id = id.wrapping_add(1);
            state.wakes.push((id, Arc::clone(wake)));
        } else {
            drop(state);
            super::call(&**wake);
        }
        WakeRegistration {
            shared: Arc::clone(&self.0),
            id,
        }
    }
}

/// Keeps a [`Wake`] registered with a [`StopToken`] until it is dropped.
#[derive(Debug)]
pub struct WakeRegistration {
    shared: Arc<Shared>,
    id: Option<u64>,
}

impl Drop for WakeRegistration {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            let mut state = self.shared.state.lock();
            let mut wakes = state.wakes.iter();
            let place = wakes.position(|(registered, _)| *registered == id);
            let wake = place.map(|place| state.wakes.remove(place));
            drop(state);
            // This may be the last pointer to the program's value, whose drop may use this very
            // stop.
            drop(wake);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::FakeClock;
    use crate::worker::Worker;

    struct Count(crate::sync::atomic::AtomicUsize);

    impl Wake for Count {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_stop_ends_a_wait_that_has_no_deadline() {
        let worker = Worker::spawn("t-wait", StopToken::wait).unwrap();
        assert!(!worker.is_finished());
        worker.join().unwrap();
    }

    #[test]
    fn a_wait_ends_when_the_clock_passes_its_deadline() {
        let fake = FakeClock::new();
        let clock = Clock::from(fake.clone());
        let deadline = clock.after(Duration::from_secs(30));
        let (told, tell) = bounded(1);
        let worker = Worker::spawn("t-deadline", move |stop| {
            told.send(stop.wait_until(&clock, deadline)).unwrap();
        })
        .unwrap();
        fake.wait_for_timer(Duration::from_secs(30));
        fake.advance(Duration::from_secs(30));
        assert_eq!(tell.recv(), Ok(WaitEnd::DeadlinePassed));
        worker.join().unwrap();
    }

    /// It is the program's. Else the threads behind it would wait for ever.
    #[test]
    fn a_wake_that_panics_keeps_no_other_from_being_called() {
        struct Rude;
        impl Wake for Rude {
            fn wake(&self) {
                panic!("nobody receives");
            }
        }
        let rude: Arc<dyn Wake> = Arc::new(Rude);
        let count = Arc::new(Count(0.into()));
        let wake: Arc<dyn Wake> = Arc::<Count>::clone(&count);
        let source = StopSource::new();
        let _rude = source.token().register(&rude);
        let _wake = source.token().register(&wake);
        source.stop();
        let _late = source.token().register(&rude);
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_wake_is_called_once_and_also_when_registered_late() {
        let count = Arc::new(Count(0.into()));
        let wake: Arc<dyn Wake> = Arc::<Count>::clone(&count);
        let source = StopSource::new();
        let _early = source.token().register(&wake);
        drop(source.token().register(&wake));
        source.stop();
        source.stop();
        let _late = source.token().register(&wake);
        assert_eq!(count.0.load(Ordering::SeqCst), 2);
    }

    /// A wake whose drop waits until another thread uses the stop of its registration.
    struct Last {
        stop: StopSource,
        used: Arc<crate::sync::Mutex<Option<bool>>>,
    }

    impl Wake for Last {
        fn wake(&self) {}
    }

    impl Drop for Last {
        fn drop(&mut self) {
            let (tell, told) = bounded(1);
            let stop = self.stop.clone();
            let user = Worker::spawn("t-user", move |_| {
                stop.stop();
                let _gave_up = tell.send(());
            });
            let is_free = told.recv_timeout(Duration::from_secs(5 * 60)).is_ok();
            *self.used.lock() = Some(is_free);
            user.unwrap().abandon();
        }
    }

    #[test]
    fn a_wake_is_dropped_under_no_lock() {
        let (stop, used) = (StopSource::new(), Arc::default());
        let wake: Arc<dyn Wake> = Arc::new(Last {
            stop: stop.clone(),
            used: Arc::clone(&used),
        });
        let registration = stop.token().register(&wake);
        drop(wake);
        drop(registration);
        assert_eq!(*used.lock(), Some(true));
    }

    #[test]
    fn the_channel_closes_at_the_stop() {
        let source = StopSource::new();
        let token = source.token();
        assert_eq!(
            token.channel().try_recv(),
            Err(crossbeam_channel::TryRecvError::Empty)
        );
        source.stop();
        assert_eq!(
            token.channel().try_recv(),
            Err(crossbeam_channel::TryRecvError::Disconnected)
        );
    }
}
