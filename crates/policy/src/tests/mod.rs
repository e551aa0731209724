//! Policies run against simulated pools, to show what no single decision shows.

mod errors;
mod limits;
mod queueing;
mod sizes;

/// Random numbers from a seed (Marsaglia's xorshift). The sequences of `fastrand` may change with its version, but a
/// simulation must always run the same way.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Returns a number between 0 and 1, uniformly distributed.
    pub(crate) fn unit(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns an exponentially distributed number with this mean: the time to the next of many independent events.
    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }
}
