//! Samples of one quantity, and their quantiles.

use std::time::Duration;

/// Measured values, in the order of their measurement.
#[derive(Clone, Debug, Default)]
pub struct SampleSet(Vec<f64>);

impl SampleSet {
    /// Adds one value.
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// Adds one value, in seconds.
    pub fn push_time(&mut self, time: Duration) {
        self.push(time.as_secs_f64());
    }

    /// Returns the number of samples.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Reports whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the median.
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// Returns the value below which this share of the samples lies, between 0 and 1.
    pub fn quantile(&self, part: f64) -> f64 {
        assert!(!self.0.is_empty(), "nothing was measured");
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len() - 1;
        let place = part * last as f64;
        let below = place.floor() as usize;
        let above = (below + 1).min(last);
        sorted[below] + (sorted[above] - sorted[below]) * (place - below as f64)
    }
}

impl FromIterator<f64> for SampleSet {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}
