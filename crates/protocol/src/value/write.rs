//! Single pieces of MessagePack, written to the end of a `Vec<u8>`, each in its shortest form.
//!
//! For whoever builds a payload around values that are encoded already. Writing to memory cannot fail; lengths are
//! `u32`, so whoever calls has compared them.

use rmp::encode;

/// Writing to a `Vec` never fails; what rmp answers besides is of no use here.
fn done<T, E>(_: Result<T, E>) {}

/// Nothing.
#[inline]
pub fn nil(out: &mut Vec<u8>) {
    done(encode::write_nil(out));
}

/// True or false.
#[inline]
pub fn bool(out: &mut Vec<u8>, value: bool) {
    done(encode::write_bool(out, value));
}

/// An integer.
#[inline]
pub fn int(out: &mut Vec<u8>, value: i64) {
    done(encode::write_sint(out, value));
}

/// An integer that is not negative.
#[inline]
pub fn uint(out: &mut Vec<u8>, value: u64) {
    done(encode::write_uint(out, value));
}

/// A number of 64 bits.
#[inline]
pub fn float(out: &mut Vec<u8>, value: f64) {
    done(encode::write_f64(out, value));
}

/// Before so many bytes of text.
#[inline]
pub fn str_header(out: &mut Vec<u8>, len: u32) {
    done(encode::write_str_len(out, len));
}

/// Before so many bytes.
#[inline]
pub fn bin_header(out: &mut Vec<u8>, len: u32) {
    done(encode::write_bin_len(out, len));
}

/// Before so many values of a list.
#[inline]
pub fn array_header(out: &mut Vec<u8>, len: u32) {
    done(encode::write_array_len(out, len));
}

/// Before so many keys and values of a map.
#[inline]
pub fn map_header(out: &mut Vec<u8>, len: u32) {
    done(encode::write_map_len(out, len));
}

/// Before so many bytes of an extension type.
#[inline]
pub fn ext_header(out: &mut Vec<u8>, kind: i8, len: u32) {
    done(encode::write_ext_meta(out, len, kind));
}

/// A short text: the names and words of the protocol itself.
#[inline]
pub fn str(out: &mut Vec<u8>, text: &str) {
    str_header(out, u32::try_from(text.len()).expect("a short text"));
    out.extend_from_slice(text.as_bytes());
}

/// A reference to a byte string in the bodies of the frame.
pub fn body(out: &mut Vec<u8>, offset: u32, len: u32) {
    ext_header(out, super::ext::BODY, 8);
    out.extend_from_slice(&offset.to_le_bytes());
    out.extend_from_slice(&len.to_le_bytes());
}
