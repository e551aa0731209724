//! [`Blob`]: a byte string for serde, which has no such type.

use std::any::TypeId;
use std::borrow::Cow;
use std::ops::Deref;

use bytes::Bytes;
use serde::Serialize;

use super::super::Encoded;

/// A byte string as a field of your own type.
///
/// serde writes `Vec<u8>` and `&[u8]` as lists of integers, in this format too. A `Blob` is written as a byte string. A
/// long `Blob` is sent without a copy, and a received one shares the memory of its frame. The types of `serde_bytes`
/// are also byte strings, but are copied once. The macro [`args!`](crate::args) needs neither.
///
/// ```
/// use snakepit::value::{Blob, Encoded, Value};
///
/// #[derive(serde::Serialize)]
/// struct Image { pixels: Blob }
///
/// let sent = Encoded::encode(&Image { pixels: Blob::from(vec![0; 3]) }).unwrap();
/// assert_eq!(sent.to_value().unwrap()["pixels"].as_bytes().unwrap().len(), 3);
/// ```
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Blob(pub Bytes);

impl std::fmt::Debug for Blob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&self.0, f)
    }
}

impl Deref for Blob {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Blob {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl<T: Into<Bytes>> From<T> for Blob {
    fn from(bytes: T) -> Self {
        Self(bytes.into())
    }
}

impl From<Blob> for super::super::Value {
    fn from(blob: Blob) -> Self {
        Self::Bytes(blob.0)
    }
}

/// Returns the bytes of a value whose type is a sequence of bytes, which serde would write as a list.
#[inline]
pub(crate) fn of_bytes<T: Serialize + ?Sized>(value: &T) -> Option<Blob> {
    let kind = typeid::of::<T>();
    let is_bytes = kind == TypeId::of::<Vec<u8>>()
        || kind == TypeId::of::<&[u8]>()
        || kind == TypeId::of::<[u8]>()
        || kind == TypeId::of::<&Vec<u8>>()
        || kind == TypeId::of::<Box<[u8]>>()
        || kind == TypeId::of::<Cow<'static, [u8]>>();
    // Safe code has no other way from a generic `Serialize` to its bytes.
    if is_bytes { Encoded::encode(value).ok().and_then(|list| bytes_of_list(list.head())) } else { None }
}

/// Extracts the bytes from an encoded list of integers between 0 and 255.
fn bytes_of_list(list: &[u8]) -> Option<Blob> {
    let mut rest = list.iter().copied();
    let skipped = match rest.next()? {
        0x90..=0x9f => 0,
        0xdc => 2,
        0xdd => 4,
        _ => return None,
    };
    let mut rest = rest.skip(skipped);
    let mut bytes = Vec::with_capacity(list.len());
    while let Some(first) = rest.next() {
        bytes.push(match first {
            0..=0x7f => first,
            0xcc => rest.next()?,
            _ => return None,
        });
    }
    Some(Blob::from(bytes))
}
