//! [`BigInt`]: an integer of any size, in the form in which it travels.
//!
//! `BigInt` is only transferred and shown. It has no arithmetic, so it needs no crate for big numbers.

use std::fmt::{self, Write};
use std::str::FromStr;

/// An integer of any size. For arithmetic, convert it to `i128` or `u128`, or pass its bytes to a crate for big
/// numbers.
///
/// ```
/// use snakepit::value::BigInt;
///
/// let number: BigInt = "-18446744073709551616".parse().unwrap();
/// assert_eq!(i128::try_from(&number), Ok(-(1 << 64)));
/// assert_eq!(number.to_string(), "-18446744073709551616");
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct BigInt {
    /// Two's complement, big-endian, in as few bytes as possible, but at least one.
    bytes: Box<[u8]>,
}

/// Conversion to and from decimal takes quadratic time, so longer numbers are shown in hexadecimal and not parsed.
const MAX_DECIMAL_BYTES: usize = 4096;
/// The number of decimal digits of the largest number with 4096 bytes.
const MAX_DIGITS: usize = 9865;

/// The error for text that is not an integer or has too many digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseBigIntError {
    /// The text contains something other than an optional sign and decimal digits.
    #[error("this is not a decimal integer: write digits, with an optional sign in front")]
    NotDecimal,
    /// The number has so many digits that parsing it would take too long.
    #[error("the integer has more than {MAX_DIGITS} digits: build it from its bytes instead")]
    TooLong,
}

/// The integer does not fit in the type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the integer does not fit into the type: use a larger integer type, or BigInt")]
pub struct DoesNotFit;

impl BigInt {
    /// Creates an integer from big-endian two's complement of any length. An empty slice is zero.
    pub fn from_twos_complement(bytes: &[u8]) -> Self {
        let mut rest = bytes;
        while let [first, second, ..] = rest {
            let sign_only = (*first == 0 && *second < 0x80) || (*first == 0xff && *second >= 0x80);
            if !sign_only {
                break;
            }
            rest = &rest[1..];
        }
        Self { bytes: if rest.is_empty() { Box::new([0]) } else { rest.into() } }
    }

    /// Returns the integer in big-endian two's complement, in as few bytes as possible, but at least one.
    pub fn as_twos_complement(&self) -> &[u8] {
        &self.bytes
    }

    /// Reports whether the integer is below zero.
    pub fn is_negative(&self) -> bool {
        self.bytes[0] >= 0x80
    }

    /// Extends the integer to 16 bytes. Fails if it is longer.
    fn widened(&self) -> Result<[u8; 16], DoesNotFit> {
        let start = 16usize.checked_sub(self.bytes.len()).ok_or(DoesNotFit)?;
        let mut wide = [if self.is_negative() { 0xff } else { 0 }; 16];
        wide[start..].copy_from_slice(&self.bytes);
        Ok(wide)
    }

    /// Returns the magnitude in limbs, lowest first.
    fn magnitude(&self) -> Vec<u32> {
        let negative = self.is_negative();
        let mut carry = negative;
        let mut limbs = Vec::with_capacity(self.bytes.len() / 4 + 1);
        for chunk in self.bytes.rchunks(4) {
            let sign = if negative { 0xff } else { 0 };
            let mut limb = [sign; 4];
            limb[4 - chunk.len()..].copy_from_slice(chunk);
            let mut limb = u32::from_be_bytes(limb);
            if negative {
                (limb, carry) = (!limb).overflowing_add(u32::from(carry));
            }
            limbs.push(limb);
        }
        if carry {
            limbs.push(1);
        }
        limbs
    }

    fn from_magnitude(limbs: &[u32], negative: bool) -> Self {
        let mut bytes = vec![0];
        bytes.extend(limbs.iter().rev().flat_map(|limb| limb.to_be_bytes()));
        if negative {
            let mut carry = true;
            for byte in bytes.iter_mut().rev() {
                (*byte, carry) = (!*byte).overflowing_add(u8::from(carry));
            }
        }
        Self::from_twos_complement(&bytes)
    }
}

/// The number of decimal digits in a limb of the conversion.
const LIMB_DIGITS: usize = 9;
const LIMB_BASE: u64 = 1_000_000_000;

impl fmt::Display for BigInt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut limbs = self.magnitude();
        let mut text = String::new();
        if self.bytes.len() > MAX_DECIMAL_BYTES {
            while limbs.last() == Some(&0) {
                limbs.pop();
            }
            text.push_str("0x");
            for (index, limb) in limbs.iter().rev().enumerate() {
                let width = if index == 0 { 0 } else { 8 };
                write!(text, "{limb:0width$x}")?;
            }
        } else {
            let mut pieces = Vec::new();
            while limbs.iter().any(|limb| *limb != 0) {
                let mut rest = 0;
                for limb in limbs.iter_mut().rev() {
                    let dividend = (rest << 32) | u64::from(*limb);
                    *limb = (dividend / LIMB_BASE) as u32;
                    rest = dividend % LIMB_BASE;
                }
                pieces.push(rest);
                while limbs.last() == Some(&0) {
                    limbs.pop();
                }
            }
            text.push_str(&pieces.pop().unwrap_or(0).to_string());
            for piece in pieces.iter().rev() {
                write!(text, "{piece:09}")?;
            }
        }
        f.pad_integral(!self.is_negative(), "", &text)
    }
}

impl fmt::Debug for BigInt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for BigInt {
    type Err = ParseBigIntError;

    fn from_str(text: &str) -> Result<Self, ParseBigIntError> {
        let (negative, digits) = match text.as_bytes() {
            [b'-', digits @ ..] => (true, digits),
            [b'+', digits @ ..] | digits => (false, digits),
        };
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return Err(ParseBigIntError::NotDecimal);
        }
        if digits.len() > MAX_DIGITS {
            return Err(ParseBigIntError::TooLong);
        }
        let mut limbs: Vec<u32> = Vec::new();
        for chunk in first_short(digits) {
            let mut carry = chunk.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
            for limb in &mut limbs {
                let product = u64::from(*limb) * LIMB_BASE + carry;
                *limb = product as u32;
                carry = product >> 32;
            }
            if carry > 0 {
                limbs.push(carry as u32);
            }
        }
        Ok(Self::from_magnitude(&limbs, negative))
    }
}

/// Splits the digits into pieces of nine. Only the first piece may be shorter.
fn first_short(digits: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (first, rest) = digits.split_at(digits.len() % LIMB_DIGITS);
    std::iter::once(first).chain(rest.chunks(LIMB_DIGITS))
}

macro_rules! from_integers {
    ($($integer:ty),*) => {$(
        impl From<$integer> for BigInt {
            fn from(number: $integer) -> Self {
                Self::from(number as i128)
            }
        }
    )*};
}

from_integers!(i8, i16, i32, i64, isize, u8, u16, u32, u64, usize);

impl From<i128> for BigInt {
    fn from(number: i128) -> Self {
        Self::from_twos_complement(&number.to_be_bytes())
    }
}

impl From<u128> for BigInt {
    fn from(number: u128) -> Self {
        let mut bytes = [0; 17];
        bytes[1..].copy_from_slice(&number.to_be_bytes());
        Self::from_twos_complement(&bytes)
    }
}

impl TryFrom<&BigInt> for i128 {
    type Error = DoesNotFit;

    fn try_from(number: &BigInt) -> Result<Self, DoesNotFit> {
        number.widened().map(i128::from_be_bytes)
    }
}

impl TryFrom<&BigInt> for u128 {
    type Error = DoesNotFit;

    fn try_from(number: &BigInt) -> Result<Self, DoesNotFit> {
        match &*number.bytes {
            // The first of seventeen bytes only holds the sign.
            [0, rest @ ..] if rest.len() == 16 => {
                rest.try_into().map(Self::from_be_bytes).map_err(|_| DoesNotFit)
            }
            _ if number.is_negative() => Err(DoesNotFit),
            _ => number.widened().map(Self::from_be_bytes),
        }
    }
}

macro_rules! try_from_owned {
    ($($integer:ty),*) => {$(
        impl TryFrom<BigInt> for $integer {
            type Error = DoesNotFit;

            fn try_from(number: BigInt) -> Result<Self, DoesNotFit> {
                Self::try_from(&number)
            }
        }
    )*};
}

try_from_owned!(i128, u128);
