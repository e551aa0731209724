//! The mean and the quantiles of numbers.

/// Returns the mean, or `None` for no numbers.
pub fn mean(numbers: &[f64]) -> Option<f64> {
    (!numbers.is_empty()).then(|| numbers.iter().sum::<f64>() / numbers.len() as f64)
}

/// Returns the quantile at `part` of sorted numbers, interpolated linearly as in numpy and R.
pub(super) fn quantile(sorted: &[f64], part: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = part.clamp(0.0, 1.0) * last as f64;
    let below = place.floor() as usize;
    let above = (below + 1).min(last);
    Some(sorted[below] + (sorted[above] - sorted[below]) * (place - below as f64))
}

/// The distribution of numbers.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct Distribution {
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The largest number.
    pub max: f64,
}

impl Distribution {
    /// Returns the spread of these numbers, or `None` for no numbers.
    pub fn of(numbers: &[f64]) -> Option<Self> {
        let mut sorted = numbers.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            mean: mean(&sorted)?,
            p50: quantile(&sorted, 0.5)?,
            p90: quantile(&sorted, 0.9)?,
            p99: quantile(&sorted, 0.99)?,
            max: *sorted.last()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_numpy() {
        // numpy.quantile([1, 2, 3, 4], [0, .25, .5, .9, 1])
        for (part, expected) in [(0.0, 1.0), (0.25, 1.75), (0.5, 2.5), (0.9, 3.7), (1.0, 4.0)] {
            let found = quantile(&[1.0, 2.0, 3.0, 4.0], part).expect("a number");
            assert!((found - expected).abs() < 1e-12, "{part}: {found}");
        }
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn a_spread_does_not_depend_on_the_order() {
        assert_eq!(Distribution::of(&[3.0, 1.0, 2.0]), Distribution::of(&[1.0, 2.0, 3.0]));
        assert_eq!(Distribution::of(&[7.0]).map(|it| (it.p50, it.p99, it.max)), Some((7.0, 7.0, 7.0)));
    }
}
