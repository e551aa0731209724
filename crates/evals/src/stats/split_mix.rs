//! Random numbers that are the same in every run and every version: SplitMix64 by Steele, Lea and Flood.
//!
//! The crate `fastrand` may return other numbers for the same seed in its next version, but reports must stay
//! comparable.

pub(super) struct SplitMix64(u64);

impl SplitMix64 {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `limit`. The high half of a product is uniform enough: it favors no number by more than
    /// `limit` in 2^64.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.next()) * limit as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_splitmix64() {
        let mut generator = SplitMix64::new(1_234_567);
        let numbers = [generator.next(), generator.next(), generator.next()];
        assert_eq!(
            numbers,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn numbers_below_a_limit_are_spread_evenly() {
        let mut generator = SplitMix64::new(7);
        let mut seen = [0_u32; 10];
        for _ in 0..10_000 {
            seen[generator.below(10)] += 1;
        }
        assert!(seen.iter().all(|count| (850..1150).contains(count)), "{seen:?}");
    }
}
