//! The statistics of a report. Every function is pure: the same numbers give the same result, because the seeds of
//! random numbers are fixed. This module knows nothing of samples or records.
//!
//! - Pass rates: the Wilson interval. It holds for few samples and for rates near 0 and 1, where the usual interval
//!   (rate ± 1.96 standard errors) does not, and it never leaves 0 to 1.
//! - Means: the percentile bootstrap. Scores have no known distribution (often many are 0 or 1), so none is assumed.
//! - Pass rates of two experiments: the exact McNemar test. Both experiments run the same samples, so only those
//!   samples count on which they differ, and these are often too few for an approximation.
//! - Scores of two experiments: the paired permutation test, which flips the signs of differences. It is exact for few
//!   differences.
#![expect(clippy::cast_precision_loss, reason = "counts of samples are small")]

mod bootstrap;
mod distribution;
mod rate;
mod significance;
mod split_mix;

pub use bootstrap::mean_interval;
pub use distribution::{Distribution, mean};
pub use rate::wilson;
pub use significance::{mcnemar, permutation};

/// An interval that contains the true value in 95 of 100 cases.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}
