//! Random numbers for tests, from a printed seed, so that a failure can be replayed.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use crate::policy::Chance;

/// Set it to a seed that a failure printed, to replay that failure.
const SEED: &str = "KUBECACHE_TEST_SEED";

/// Set it to the minimum number of random histories that each test plays, and of places that it
/// mutates.
const SEEDS: &str = "KUBECACHE_SEEDS";

/// Returns how many random histories a test plays: `usual`, or more if the environment says so.
pub(crate) fn seeds(usual: u64) -> u64 {
    let asked = std::env::var(SEEDS)
        .ok()
        .and_then(|asked| asked.parse().ok());
    asked.unwrap_or(usual).max(usual)
}

/// Small random numbers from a seed.
pub(crate) struct Dice(Chance);

impl Dice {
    /// Dice from a new seed, or the one in the environment; prints it.
    pub(crate) fn new() -> (Self, u64) {
        let given = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| RandomState::new().build_hasher().finish());
        println!("{SEED}={seed}");
        (Self::seeded(seed), seed)
    }

    /// New dice with their seed for each of [`seeds`] histories.
    pub(crate) fn histories(usual: u64) -> impl Iterator<Item = (Self, u64)> {
        (0..seeds(usual)).map(|_| Self::new())
    }

    /// Places in a text of `length` bytes at equal distances, the first at random: about [`seeds`]
    /// of them, or each.
    pub(crate) fn places(
        &mut self,
        length: usize,
        usual: u64,
    ) -> impl Iterator<Item = usize> + use<> {
        let most = usize::try_from(seeds(usual)).unwrap_or(usize::MAX);
        let distance = length.div_ceil(most).max(1);
        let first = self.roll(u64::try_from(distance).unwrap_or(u64::MAX));
        (usize::try_from(first).unwrap_or(0)..length).step_by(distance)
    }

    /// Dice that fall the same each time.
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(Chance::new(seed))
    }

    /// Uniform in [0, `sides`).
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0.below(sides)
    }
}
