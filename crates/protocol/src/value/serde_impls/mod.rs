//! serde for this crate's types: as objects with this crate's codec, in a readable form with other formats.

mod base64;
mod de;
mod ser;

use std::fmt;
use std::str::FromStr;

use super::{BigInt, DateTime, NaiveDateTime, passthrough};

/// A type with its own extension: data for this crate's codec and other binary formats, text for people.
trait ExtensionType: FromStr + fmt::Display {
    const NAME: &'static str;
    const EXPECTED: &'static str;
    fn data(&self) -> impl AsRef<[u8]>;
    fn from_data(data: &[u8]) -> Option<Self>;

    /// Returns a number that formats for people show instead of the text, if there is one.
    fn number(&self) -> Option<i128> {
        None
    }

    fn from_number(_: i128) -> Option<Self> {
        None
    }
}

impl ExtensionType for BigInt {
    const NAME: &'static str = passthrough::BIG_INT;
    const EXPECTED: &'static str = "an integer";

    fn data(&self) -> impl AsRef<[u8]> {
        self.as_twos_complement()
    }

    fn from_data(data: &[u8]) -> Option<Self> {
        Some(Self::from_twos_complement(data))
    }

    fn number(&self) -> Option<i128> {
        self.try_into().ok()
    }

    fn from_number(number: i128) -> Option<Self> {
        Some(number.into())
    }
}

impl ExtensionType for DateTime {
    const NAME: &'static str = passthrough::DATE_TIME;
    const EXPECTED: &'static str = "a date-time with its offset";

    fn data(&self) -> impl AsRef<[u8]> {
        self.to_wire()
    }

    fn from_data(data: &[u8]) -> Option<Self> {
        Self::from_wire(data.try_into().ok()?).ok()
    }
}

impl ExtensionType for NaiveDateTime {
    const NAME: &'static str = passthrough::NAIVE_DATE_TIME;
    const EXPECTED: &'static str = "a date-time without a zone";

    fn data(&self) -> impl AsRef<[u8]> {
        self.to_wire()
    }

    fn from_data(data: &[u8]) -> Option<Self> {
        data.try_into().ok().map(Self::from_wire)
    }
}
