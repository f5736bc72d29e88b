//! How long a dial may take before another replaces it, by the pace of earlier dials.

use std::time::{Duration, Instant};

use crate::sync::{Mutex, Rank};

/// A dial may always take this long, which is longer than a handshake over a slow line.
const PATIENCE_MIN: Duration = Duration::from_millis(500);

/// A dial that takes this many times as long as the last success meets silence, not a slow server.
const SLOWER: u32 = 8;

/// An older success says nothing about the present server.
const RECENT: Duration = Duration::from_secs(10);

/// The last dial that succeeded: when, and how long it took.
#[derive(Clone, Copy, Debug)]
struct LastDial {
    at: Instant,
    took: Duration,
}

impl LastDial {
    fn patience(self) -> Duration {
        self.took.saturating_mul(SLOWER).max(PATIENCE_MIN)
    }
}

/// The pace of a client's dials.
#[derive(Debug)]
pub(super) struct DialPace(Mutex<Option<LastDial>>);

impl DialPace {
    pub(super) fn new() -> Self {
        Self(Mutex::ranked(Rank::DIAL_PACE, None))
    }

    /// Returns how long a dial that begins now may take before another replaces it. `None` is all
    /// its time.
    ///
    /// Another dial helps if one of several servers behind an address is dead: others succeed
    /// meanwhile. It does harm if the server is slow. So a dial has longer after a slow one, and
    /// all its time without a recent one.
    pub(super) fn patience(&self, now: Instant) -> Option<Duration> {
        let last = (*self.0.lock())?;
        (now.saturating_duration_since(last.at) < RECENT).then(|| last.patience())
    }

    /// Returns the same for the next dial, after one that began at `began` and was given up in
    /// silence.
    ///
    /// If others succeeded meanwhile, only one server of several is silent, and the next dial waits
    /// no longer. Otherwise the server may have become slow, and the next dial has twice the time.
    pub(super) fn patience_after(&self, began: Instant, silence: Duration) -> Duration {
        let last = *self.0.lock();
        match last {
            Some(last) if last.at > began => last.patience(),
            _ => silence.saturating_mul(2),
        }
    }

    /// Notes a dial that succeeded.
    pub(super) fn succeeded(&self, began: Instant, now: Instant) {
        let took = now.saturating_duration_since(began);
        *self.0.lock() = Some(LastDial { at: now, took });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_dials_that_succeed_soon_make_others_impatient() {
        let pace = DialPace::new();
        let begin = crate::clock::Clock::system().now();
        let after = |seconds: f64| begin + Duration::from_secs_f64(seconds);
        assert_eq!(pace.patience(begin), None);
        pace.succeeded(begin, after(0.01));
        assert_eq!(pace.patience(after(0.01)), Some(PATIENCE_MIN));
        assert_eq!(pace.patience(after(9.9)), Some(PATIENCE_MIN));
        assert_eq!(pace.patience(after(10.02)), None);
        pace.succeeded(after(20.0), after(23.0));
        assert_eq!(pace.patience(after(24.0)), Some(Duration::from_secs(24)));
    }

    #[test]
    fn a_silence_makes_the_next_dial_patient_unless_others_succeeded_meanwhile() {
        let pace = DialPace::new();
        let begin = crate::clock::Clock::system().now();
        let after = |seconds: f64| begin + Duration::from_secs_f64(seconds);
        pace.succeeded(begin, after(0.01));
        let doubled = pace.patience_after(after(1.0), PATIENCE_MIN);
        assert_eq!(doubled, Duration::from_secs(1));
        pace.succeeded(after(1.1), after(1.2));
        let short = pace.patience_after(after(1.0), Duration::from_secs(4));
        assert_eq!(short, Duration::from_millis(800));
    }
}
