//! Options of a reflector whose waits tests can foresee.

use crate::clock::Clock;
use crate::reflector::{BackoffOptions, ReflectorOptions};

impl ReflectorOptions {
    /// Options on `clock` that make every wait exact.
    pub(crate) fn exact(clock: Clock) -> Self {
        Self::default()
            .clock(clock)
            .seed(1)
            .backoff(BackoffOptions::default().jitter(0.0))
    }
}
