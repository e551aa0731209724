//! Appends single tokens of MessagePack to a `Vec<u8>`, each in its shortest form.
//!
//! For code that builds a payload around values that are already encoded. Writing to memory cannot fail. Lengths are
//! `u32`, so the caller has to check them.

use rmp::encode;

/// Defines functions that write one token each. Their results are dropped, because writing to a `Vec` never fails.
macro_rules! tokens {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) = $write:ident($($passed:ident),*);)*) => {$(
        $(#[$doc])*
        #[inline]
        pub fn $name(out: &mut Vec<u8>, $($argument: $type),*) {
            let _ = encode::$write(out, $($passed),*);
        }
    )*};
}

tokens! {
    /// Writes nil.
    nil() = write_nil();
    /// Writes a boolean.
    bool(value: bool) = write_bool(value);
    /// Writes an integer.
    int(value: i64) = write_sint(value);
    /// Writes an unsigned integer.
    uint(value: u64) = write_uint(value);
    /// Writes a 64-bit float.
    float(value: f64) = write_f64(value);
    /// Writes the header of a text of `len` bytes.
    str_header(len: u32) = write_str_len(len);
    /// Writes the header of a byte string of `len` bytes.
    bin_header(len: u32) = write_bin_len(len);
    /// Writes the header of a list of `len` values.
    array_header(len: u32) = write_array_len(len);
    /// Writes the header of a map of `len` entries.
    map_header(len: u32) = write_map_len(len);
    /// Writes the header of an extension of `len` bytes.
    ext_header(kind: i8, len: u32) = write_ext_meta(len, kind);
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
