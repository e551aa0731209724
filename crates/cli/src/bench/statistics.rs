//! Medians and quantiles.

pub(super) fn median(samples: Vec<f64>) -> f64 {
    quantile(samples, 0.5)
}

/// Returns the sample that the given part of all samples does not exceed, or NaN if there are no samples.
pub(super) fn quantile(mut samples: Vec<f64>, part: f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    #[expect(clippy::cast_precision_loss, reason = "some thousands")]
    let rank = (samples.len() as f64 * part) as usize;
    samples.get(rank.min(samples.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_samples() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]).to_string(), "2");
        assert_eq!(quantile((0..100).map(f64::from).collect(), 0.99).to_string(), "99");
        assert!(median(Vec::new()).is_nan());
    }
}
