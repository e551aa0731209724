//! Appends single tokens of MessagePack to a `Vec<u8>`, each in its shortest form.
//!
//! For code that builds a payload around values that are already encoded. Writing to memory cannot fail. Lengths are
//! `u32`, so the caller has to check them.

use rmp::encode;

/// Drops the result of rmp, because writing to a `Vec` never fails.
fn done<T, E>(_: Result<T, E>) {}

/// Writes nil.
#[inline]
pub fn nil(out: &mut Vec<u8>) {
    done(encode::write_nil(out));
}

/// Writes a boolean.
#[inline]
pub fn bool(out: &mut Vec<u8>, value: bool) {
    done(encode::write_bool(out, value));
}

/// Writes an integer.
#[inline]
pub fn int(out: &mut Vec<u8>, value: i64) {
    done(encode::write_sint(out, value));
}

/// Writes an unsigned integer.
#[inline]
pub fn uint(out: &mut Vec<u8>, value: u64) {
    done(encode::write_uint(out, value));
}

/// Writes a 64-bit float.
#[inline]
pub fn float(out: &mut Vec<u8>, value: f64) {
    done(encode::write_f64(out, value));
}

/// Writes the header of a text of `len` bytes.
#[inline]
pub fn str_header(out: &mut Vec<u8>, len: u32) {
    done(encode::write_str_len(out, len));
}

/// Writes the header of a byte string of `len` bytes.
#[inline]
pub fn bin_header(out: &mut Vec<u8>, len: u32) {
    done(encode::write_bin_len(out, len));
}

/// Writes the header of a list of `len` values.
#[inline]
pub fn array_header(out: &mut Vec<u8>, len: u32) {
    done(encode::write_array_len(out, len));
}

/// Writes the header of a map of `len` entries.
#[inline]
pub fn map_header(out: &mut Vec<u8>, len: u32) {
    done(encode::write_map_len(out, len));
}

/// Writes the header of an extension of `len` bytes.
#[inline]
pub fn ext_header(out: &mut Vec<u8>, kind: i8, len: u32) {
    done(encode::write_ext_meta(out, len, kind));
}

/// Writes a short text, such as a name or a keyword of the protocol.
#[inline]
pub fn str(out: &mut Vec<u8>, text: &str) {
    str_header(out, u32::try_from(text.len()).expect("a short text"));
    out.extend_from_slice(text.as_bytes());
}

/// Writes a reference to a byte string in the bodies of the frame.
pub fn body(out: &mut Vec<u8>, offset: u32, len: u32) {
    ext_header(out, super::ext::BODY, 8);
    out.extend_from_slice(&offset.to_le_bytes());
    out.extend_from_slice(&len.to_le_bytes());
}
