//! Parses durations as people write them: `3s`, `500ms`, `1m 30s`, or a number of seconds.

use std::time::Duration;

use jiff::SignedDuration;

pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().map(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds
        .unwrap_or_else(|| text.parse::<SignedDuration>().ok()?.try_into().ok())
        .ok_or_else(|| "write it as 3s, 500ms, 2m or a number of seconds".to_owned())
}

/// Parses a duration that must not be zero.
pub(crate) fn parse_positive(text: &str) -> Result<Duration, String> {
    match parse(text)? {
        Duration::ZERO => Err("zero leaves no time at all; omit the option for no limit".to_owned()),
        duration => Ok(duration),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, millis) in [
            ("3s", 3000),
            ("500ms", 500),
            ("2m", 120_000),
            ("1m 30s", 90_000),
            ("3", 3000),
            ("0.5", 500),
            ("1.5s", 1500),
            ("0", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn an_invalid_duration_is_refused_with_an_example() {
        for text in ["", "-1", "-3s", "soon", "3 parsecs", "nan", "inf", "1e300"] {
            assert!(parse(text).is_err_and(|message| message.contains("3s")), "{text}");
        }
        assert!(parse_positive("0s").is_err_and(|message| message.contains("zero")));
    }
}
