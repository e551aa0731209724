//! The outcome of one call in the answer to calls that travelled together.

use std::marker::PhantomData;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::call::RemoteError;

/// `[true, value]` or `[false, error]`.
pub(super) struct BatchItem<T>(pub(super) Result<T, RemoteError>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for BatchItem<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pair<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Pair<T> {
            type Value = BatchItem<T>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("[true, value] or [false, error]")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut pair: A) -> Result<Self::Value, A::Error> {
                let missing = || serde::de::Error::invalid_length(1, &"two entries");
                let well = pair.next_element::<bool>()?.ok_or_else(missing)?;
                Ok(BatchItem(if well {
                    Ok(pair.next_element()?.ok_or_else(missing)?)
                } else {
                    Err(pair.next_element()?.ok_or_else(missing)?)
                }))
            }
        }

        deserializer.deserialize_seq(Pair(PhantomData))
    }
}
