//! The statistics of a report. Everything here is a pure function: the same numbers give the same answer, since the seeds of random numbers are
//! fixed. It knows nothing of samples and records.
//!
//! - Pass rates: the interval of Wilson. It keeps its promise for few samples and for rates near 0 and 1, where the usual one
//!   (rate ± 1.96 standard errors) does not, and it never leaves 0 to 1.
//! - Means: the percentile bootstrap. Scores have no known distribution (often many 0 and 1), so none is assumed.
//! - Two experiments, passed or not: the exact test of McNemar. Samples are the same for both, so only those count on which
//!   they differ, and those are often too few for an approximation.
//! - Two experiments, scores: the paired permutation test (signs of differences are flipped), exact for few differences.
#![expect(clippy::cast_precision_loss, reason = "counts of samples are small")]

mod bootstrap;
mod paired;
mod rate;
mod split_mix;
mod spread;

pub use bootstrap::mean_interval;
pub use paired::{mcnemar, permutation};
pub use rate::wilson;
pub use spread::{Spread, mean};

/// An interval that contains the true value in 95 of 100 cases.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}
