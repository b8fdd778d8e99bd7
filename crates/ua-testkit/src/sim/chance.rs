//! Chance, decided by a seed.

use ua_core::{Entropy as _, SeededEntropy};

/// A sequence of draws.
#[derive(Debug)]
pub(super) struct Chance(SeededEntropy);

impl Chance {
    /// The sequence `name` of `seed`; sequences of different names have nothing to do with each other.
    pub(super) fn of(seed: u64, name: &str) -> Self {
        let salt = name
            .bytes()
            .fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3));
        Self(SeededEntropy::new(SeededEntropy::new(seed ^ salt).next_u64()))
    }

    /// A number below `n`; 0 when `n` is 0.
    pub(super) fn below(&self, n: usize) -> usize {
        let n = u64::try_from(n.max(1)).unwrap_or(u64::MAX);
        usize::try_from(self.0.next_u64() % n).unwrap_or(0)
    }

    /// True once in `n` draws.
    pub(super) fn one_in(&self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of `things`.
    pub(super) fn pick<'t, T>(&self, things: &'t [T]) -> Option<&'t T> {
        things.get(self.below(things.len()))
    }
}
