//! [`DateTime`] and [`NaiveDateTime`]: date-times in the form in which they travel, in microseconds.
//!
//! Both types only hold and show a date-time. For calendar functions, enable the feature `jiff`, which converts both
//! ways.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use bytes::Buf;

/// An instant with its offset from UTC: an aware `datetime` in Python.
///
/// Two date-times are equal only if their offsets are equal too. To compare instants, compare
/// [`unix_micros`](Self::unix_micros).
///
/// ```
/// use snakepit::value::DateTime;
///
/// let time: DateTime = "2024-02-29T12:34:56.5+02:00".parse().unwrap();
/// assert_eq!((time.unix_micros(), time.offset_seconds()), (1_709_202_896_500_000, 7200));
/// assert_eq!(time.to_string(), "2024-02-29T12:34:56.500000+02:00");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DateTime {
    micros: i64,
    offset: i32,
}

/// A date and a time without a zone: a naive `datetime` in Python.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NaiveDateTime {
    micros: i64,
}

/// The error for an invalid date-time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TimeError {
    /// The offset from UTC is a day or more.
    #[error("the offset of {0} seconds from UTC is too large: use less than a day (86400 seconds)")]
    Offset(i32),
    /// The instant is too far from 1970 for 64 bits of microseconds.
    #[error("the time is too far from 1970: microseconds since then must fit into 64 bits")]
    Range,
    /// The nanoseconds amount to a second or more.
    #[error("the time has {0} nanoseconds in its second, and must have fewer than 1000000000")]
    Nanoseconds(u32),
    /// The text is not a date-time.
    #[error("this is not a date-time: write it like 2024-02-29T12:34:56.789012{0}")]
    Text(&'static str),
}

const DAY_SECONDS: i64 = 86_400;
const SECOND: i64 = 1_000_000;
/// The offset in the example that [`TimeError::Text`] shows; a naive date-time has none.
const WITH_OFFSET: &str = "+02:00";

impl DateTime {
    /// Creates a date-time from microseconds since 1970-01-01T00:00:00 UTC and an offset from UTC in seconds. East is
    /// positive.
    pub fn new(unix_micros: i64, offset_seconds: i32) -> Result<Self, TimeError> {
        if i64::from(offset_seconds).abs() >= DAY_SECONDS {
            return Err(TimeError::Offset(offset_seconds));
        }
        Ok(Self { micros: unix_micros, offset: offset_seconds })
    }

    /// Returns the microseconds since 1970-01-01T00:00:00 UTC.
    pub fn unix_micros(&self) -> i64 {
        self.micros
    }

    /// Returns the offset from UTC in seconds. East is positive.
    pub fn offset_seconds(&self) -> i32 {
        self.offset
    }

    pub(crate) fn to_wire(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&self.micros.to_le_bytes());
        bytes[8..].copy_from_slice(&self.offset.to_le_bytes());
        bytes
    }

    pub(crate) fn from_wire(bytes: [u8; 12]) -> Result<Self, TimeError> {
        let mut bytes = bytes.as_slice();
        Self::new(bytes.get_i64_le(), bytes.get_i32_le())
    }

    /// Reads MessagePack's own timestamp. Truncates its nanoseconds to microseconds. Returns `None` if no timestamp has
    /// the length of `data`.
    pub(crate) fn from_timestamp(data: &[u8]) -> Result<Option<Self>, TimeError> {
        let mut rest = data;
        let (seconds, nanos) = match data.len() {
            4 => (i64::from(rest.get_u32()), 0),
            8 => {
                let both = rest.get_u64();
                ((both & ((1 << 34) - 1)) as i64, (both >> 34) as u32)
            }
            12 => {
                let nanos = rest.get_u32();
                (rest.get_i64(), nanos)
            }
            _ => return Ok(None),
        };
        if nanos > 999_999_999 {
            return Err(TimeError::Nanoseconds(nanos));
        }
        let micros = seconds.checked_mul(SECOND).and_then(|it| it.checked_add(i64::from(nanos / 1000)));
        Ok(Some(Self { micros: micros.ok_or(TimeError::Range)?, offset: 0 }))
    }
}

impl NaiveDateTime {
    /// Creates a date-time from microseconds since 1970-01-01T00:00:00, in an unspecified zone.
    pub fn new(micros: i64) -> Self {
        Self { micros }
    }

    /// Returns the microseconds since 1970-01-01T00:00:00, in an unspecified zone.
    pub fn micros(&self) -> i64 {
        self.micros
    }

    pub(crate) fn to_wire(self) -> [u8; 8] {
        self.micros.to_le_bytes()
    }

    pub(crate) fn from_wire(bytes: [u8; 8]) -> Self {
        Self { micros: i64::from_le_bytes(bytes) }
    }
}

impl TryFrom<SystemTime> for DateTime {
    type Error = TimeError;

    /// Returns the date-time in UTC, rounded down to microseconds.
    fn try_from(time: SystemTime) -> Result<Self, TimeError> {
        let micros = match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_micros()),
            Err(before) => i64::try_from(before.duration().as_nanos().div_ceil(1000)).map(|it| -it),
        };
        Ok(Self { micros: micros.map_err(|_| TimeError::Range)?, offset: 0 })
    }
}

impl From<DateTime> for SystemTime {
    fn from(time: DateTime) -> Self {
        let distance = Duration::from_micros(time.micros.unsigned_abs());
        if time.micros < 0 { Self::UNIX_EPOCH - distance } else { Self::UNIX_EPOCH + distance }
    }
}

impl fmt::Display for DateTime {
    /// Writes RFC 3339. Omits the microseconds if they are zero. Includes the seconds of the offset if there are any.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_civil(f, i128::from(self.micros) + i128::from(self.offset) * i128::from(SECOND))?;
        let (hours, rest) = (self.offset.abs() / 3600, self.offset.abs() % 3600);
        let sign = if self.offset < 0 { '-' } else { '+' };
        match (self.offset, rest % 60) {
            (0, _) => f.write_str("Z"),
            (_, 0) => write!(f, "{sign}{hours:02}:{:02}", rest / 60),
            (_, seconds) => write!(f, "{sign}{hours:02}:{:02}:{seconds:02}", rest / 60),
        }
    }
}

impl fmt::Display for NaiveDateTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_civil(f, i128::from(self.micros))
    }
}

fn write_civil(f: &mut fmt::Formatter<'_>, micros: i128) -> fmt::Result {
    let second = i128::from(SECOND);
    let (seconds, micros) = (micros.div_euclid(second) as i64, micros.rem_euclid(second));
    let (day, second) = (seconds.div_euclid(DAY_SECONDS), seconds.rem_euclid(DAY_SECONDS));
    let (year, month, day) = civil_from_days(day);
    // ISO 8601 requires a sign in front of a year with more than four digits.
    let sign = if year > 9999 { "+" } else { "" };
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    write!(f, "{sign}{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
    if micros == 0 { Ok(()) } else { write!(f, ".{micros:06}") }
}

/// Converts days since 1970-01-01 to the proleptic Gregorian calendar. Counts eras of 400 years from a 1st of March.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let march_month = (month + 9) % 12;
    let day_of_year = (153 * march_month + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

impl FromStr for DateTime {
    type Err = TimeError;

    /// Parses RFC 3339. Also accepts a space instead of the `T`, and an offset with seconds.
    fn from_str(text: &str) -> Result<Self, TimeError> {
        let wrong = || TimeError::Text(WITH_OFFSET);
        let (local, rest) = read_civil(text).ok_or_else(wrong)?;
        let offset = match rest.as_bytes() {
            b"Z" | b"z" => 0,
            [b'+', ..] => read_offset(&rest[1..]).ok_or_else(wrong)?,
            [b'-', ..] => -read_offset(&rest[1..]).ok_or_else(wrong)?,
            _ => return Err(wrong()),
        };
        Self::new(local - i64::from(offset) * SECOND, offset)
    }
}

impl FromStr for NaiveDateTime {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, TimeError> {
        match read_civil(text) {
            Some((micros, "")) => Ok(Self { micros }),
            _ => Err(TimeError::Text("")),
        }
    }
}

/// Parses the local time at the start of a text. Also returns the rest of the text.
fn read_civil(text: &str) -> Option<(i64, &str)> {
    let (head, rest) = text.split_at_checked(19)?;
    let shape = head.as_bytes();
    let separators = [(4, b"--"), (7, b"--"), (10, b"T "), (13, b"::"), (16, b"::")];
    let separated = separators.iter().all(|(at, any)| any.contains(&shape[*at].to_ascii_uppercase()));
    if !separated || !head.is_ascii() {
        return None;
    }
    let field = |from: usize, to: usize| number(&head[from..to]);
    let (year, month, day) = (field(0, 4)?, field(5, 7)?, field(8, 10)?);
    let (hour, minute, second) = (field(11, 13)?, field(14, 16)?, field(17, 19)?);
    let days = days_from_civil(year, month, day);
    let exists = (1..=12).contains(&month) && civil_from_days(days) == (year, month, day);
    if !exists || year == 0 || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let (micros, rest) = read_fraction(rest)?;
    Some(((days * DAY_SECONDS + hour * 3600 + minute * 60 + second) * SECOND + micros, rest))
}

/// Parses an optional fraction into microseconds. Ignores further digits.
fn read_fraction(text: &str) -> Option<(i64, &str)> {
    let Some(digits) = text.strip_prefix('.') else { return Some((0, text)) };
    let len = digits.bytes().take_while(u8::is_ascii_digit).count();
    if len == 0 {
        return None;
    }
    let (digits, rest) = digits.split_at(len);
    let micros = digits.bytes().chain(std::iter::repeat(b'0')).take(6);
    Some((micros.fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0')), rest))
}

/// Parses `hh:mm` or `hh:mm:ss` into seconds.
fn read_offset(text: &str) -> Option<i32> {
    let parts: Option<Vec<i64>> =
        text.split(':').map(|part| if part.len() == 2 { number(part) } else { None }).collect();
    let seconds = match parts?[..] {
        [hours, minutes] if minutes < 60 => hours * 3600 + minutes * 60,
        [hours, minutes, seconds] if minutes < 60 && seconds < 60 => hours * 3600 + minutes * 60 + seconds,
        _ => return None,
    };
    i32::try_from(seconds).ok()
}

fn number(digits: &str) -> Option<i64> {
    if digits.bytes().all(|it| it.is_ascii_digit()) { digits.parse().ok() } else { None }
}
