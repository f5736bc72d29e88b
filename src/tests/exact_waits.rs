//! Options of a reflector whose waits tests can foresee.

use crate::clock::Clock;
use crate::reflector::{BackoffOptions, ReflectorOptions};

impl ReflectorOptions {
    /// Options on `clock` that make every wait exact. Lists are streamed if the source can.
    pub(crate) fn exact(clock: Clock) -> Self {
        Self::default()
            .clock(clock)
            .seed(1)
            .watch_list(true)
            .backoff(BackoffOptions::default().jitter(0.0))
    }
}
