//! Conversions between this crate's date-times and those of `jiff`, behind the feature `jiff`.
//!
//! jiff has nanoseconds, so a conversion from jiff truncates to microseconds. jiff covers only the years from -9999 to
//! 9999, so a conversion to jiff can fail.

use jiff::civil;
use jiff::tz::{Offset, TimeZone};
use jiff::{Timestamp, Zoned};

use super::super::{DateTime, NaiveDateTime, TimeError};

const EPOCH: civil::DateTime = civil::datetime(1970, 1, 1, 0, 0, 0, 0);

/// Converts nanoseconds to microseconds, rounding towards the past.
fn micros_of(nanos: i128) -> Result<i64, TimeError> {
    i64::try_from(nanos.div_euclid(1000)).map_err(|_| TimeError::Range)
}

impl TryFrom<Timestamp> for DateTime {
    type Error = TimeError;

    /// Returns the date-time in UTC.
    fn try_from(time: Timestamp) -> Result<Self, TimeError> {
        Self::new(micros_of(time.as_nanosecond())?, 0)
    }
}

impl TryFrom<&Zoned> for DateTime {
    type Error = TimeError;

    /// Keeps the zone's offset at that time, but not the zone's name.
    fn try_from(time: &Zoned) -> Result<Self, TimeError> {
        Self::new(micros_of(time.timestamp().as_nanosecond())?, time.offset().seconds())
    }
}

impl TryFrom<DateTime> for Timestamp {
    type Error = TimeError;

    fn try_from(time: DateTime) -> Result<Self, TimeError> {
        Self::from_microsecond(time.unix_micros()).map_err(|_| TimeError::Range)
    }
}

impl TryFrom<DateTime> for Zoned {
    type Error = TimeError;

    /// Returns the date-time in a zone with a fixed offset.
    fn try_from(time: DateTime) -> Result<Self, TimeError> {
        let seconds = time.offset_seconds();
        let offset = Offset::from_seconds(seconds).map_err(|_| TimeError::Offset(seconds))?;
        Ok(Timestamp::try_from(time)?.to_zoned(TimeZone::fixed(offset)))
    }
}

impl TryFrom<civil::DateTime> for NaiveDateTime {
    type Error = TimeError;

    fn try_from(time: civil::DateTime) -> Result<Self, TimeError> {
        micros_of(time.duration_since(EPOCH).as_nanos()).map(Self::new)
    }
}

impl TryFrom<NaiveDateTime> for civil::DateTime {
    type Error = TimeError;

    fn try_from(time: NaiveDateTime) -> Result<Self, TimeError> {
        let since = jiff::SignedDuration::from_micros(time.micros());
        EPOCH.checked_add(since).map_err(|_| TimeError::Range)
    }
}

#[cfg(test)]
mod tests {
    use jiff::{Timestamp, Zoned, civil};

    use crate::value::{DateTime, NaiveDateTime, TimeError};

    #[test]
    fn date_times_round_trip() {
        let ours: DateTime = "2024-02-29T12:34:56.789012+05:45".parse().expect("a date-time");
        let zoned = Zoned::try_from(ours).expect("in range");
        assert_eq!(zoned.strftime("%Y-%m-%dT%H:%M:%S%.f%:z").to_string(), ours.to_string());
        assert_eq!(DateTime::try_from(&zoned), Ok(ours));
        let utc = DateTime::new(-1, 0).expect("an offset");
        let timestamp = Timestamp::try_from(utc).expect("in range");
        assert_eq!(DateTime::try_from(timestamp), Ok(utc));
        let naive: NaiveDateTime = "1969-12-31T23:59:59.999999".parse().expect("a date-time");
        let civil = civil::DateTime::try_from(naive).expect("in range");
        assert_eq!(civil.to_string(), naive.to_string());
        assert_eq!(NaiveDateTime::try_from(civil), Ok(naive));
    }

    #[test]
    fn times_beyond_the_years_of_jiff_are_refused() {
        assert_eq!(
            Timestamp::try_from(DateTime::new(i64::MAX, 0).expect("an offset")),
            Err(TimeError::Range)
        );
        assert_eq!(civil::DateTime::try_from(NaiveDateTime::new(i64::MIN)), Err(TimeError::Range));
    }

    #[test]
    fn nanoseconds_are_rounded_down_to_microseconds() {
        let time = Timestamp::from_nanosecond(-1).expect("in range");
        assert_eq!(DateTime::try_from(time).map(|it| it.unix_micros()), Ok(-1));
    }
}
