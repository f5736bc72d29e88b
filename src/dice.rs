//! Random numbers for tests: small, and from a seed that is printed, so that a failure can be played again.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

/// Set to a seed that a failure printed, to play it again.
const SEED: &str = "KUBECACHE_TEST_SEED";

/// Small random numbers from a seed (xorshift).
pub(crate) struct Dice(u64);

impl Dice {
    /// Dice from a new seed, or the one in the environment; prints it.
    pub(crate) fn new() -> (Self, u64) {
        let given = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| RandomState::new().build_hasher().finish()) | 1;
        println!("{SEED}={seed}");
        (Self(seed), seed)
    }

    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.checked_rem(sides).unwrap_or_default()
    }
}
