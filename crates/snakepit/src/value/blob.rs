//! [`Blob`]: a byte string for serde, which has no type of its own for one.

use std::ops::Deref;

use bytes::Bytes;

/// A byte string as a field of a type of yours.
///
/// serde writes `Vec<u8>` and `&[u8]` as lists of integers, also here; a `Blob` is written as a byte string. A long one
/// is sent without being copied, and read as a part of the memory that it came in.
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

impl From<Blob> for super::Value {
    fn from(blob: Blob) -> Self {
        Self::Bytes(blob.0)
    }
}
