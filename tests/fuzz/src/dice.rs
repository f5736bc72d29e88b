//! Random numbers from a seed.

/// `SplitMix64`: the same numbers for the same seed on each machine.
pub struct Dice(u64);

impl Dice {
    pub fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// The seed of dice that go on as these do.
    pub fn state(&self) -> u64 {
        self.0
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in [0, `count`); `count` is small and not zero.
    pub fn below(&mut self, count: usize) -> usize {
        usize::try_from((self.next() >> 33) % (count as u64)).unwrap_or_default()
    }
}
