//! Iterates over the entries of lists, maps and variants, and adds their position to errors.

use std::collections::HashMap;

use serde::de::{self, DeserializeSeed, Visitor};

use super::{Decoder, DuplicateKeys};
use crate::value::ValueError;
use crate::value::read::Reader;

/// The unread entries of a list or a map.
pub(super) struct Entries<'a, 'de> {
    decoder: &'a mut Decoder<'de>,
    len: usize,
    left: usize,
    /// The bytes from the key of the current entry onwards.
    key: &'de [u8],
    /// The indexes of entries that a later entry with the same key replaces, in descending order.
    replaced: Vec<usize>,
}

impl<'a, 'de> Entries<'a, 'de> {
    #[inline]
    pub(super) fn list(decoder: &'a mut Decoder<'de>, len: usize) -> Self {
        Self { decoder, len, left: len, key: &[], replaced: Vec::new() }
    }

    #[inline]
    pub(super) fn map(decoder: &'a mut Decoder<'de>, len: usize) -> Result<Self, ValueError> {
        let replaced = match decoder.keys {
            DuplicateKeys::AsTheyCome => Vec::new(),
            DuplicateKeys::LastCounts => replaced_entries(decoder, len)?,
        };
        Ok(Self { decoder, len, left: len, key: &[], replaced })
    }

    /// Fails if the type left entries unread, as a tuple does that is shorter than the list.
    #[inline]
    pub(super) fn finish(&self) -> Result<(), ValueError> {
        if self.left == 0 {
            return Ok(());
        }
        let expected = self.len - self.left;
        Err(ValueError::mismatch(format!("expected {expected} entries, found {}", self.len)))
    }

    #[cold]
    fn at_key(&self, error: ValueError) -> ValueError {
        error.at_key(&Reader::key_for_path(self.key))
    }
}

/// Returns which entries of the next map are replaced by later ones, in descending order.
fn replaced_entries(decoder: &Decoder<'_>, len: usize) -> Result<Vec<usize>, ValueError> {
    let mut ahead = Decoder { reader: decoder.reader, ..*decoder };
    let mut last = HashMap::with_capacity(len.min(1024));
    let mut replaced = Vec::new();
    for index in 0..len {
        ahead.reader.check_key()?;
        // Keys are compared by their text. Different scalars have different texts, except for byte strings above 64
        // bytes, which are shown only by their length.
        let key = ahead.value()?.to_string();
        ahead.reader.skip()?;
        replaced.extend(last.insert(key, index));
    }
    replaced.sort_unstable_by(|a, b| b.cmp(a));
    Ok(replaced)
}

impl<'de> de::SeqAccess<'de> for &mut Entries<'_, 'de> {
    type Error = ValueError;

    #[inline]
    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, ValueError> {
        if self.left == 0 {
            return Ok(None);
        }
        let index = self.len - self.left;
        self.left -= 1;
        self.decoder.take(size_of::<T::Value>())?;
        seed.deserialize(&mut *self.decoder).map(Some).map_err(|error| error.at_index(index))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'de> de::MapAccess<'de> for &mut Entries<'_, 'de> {
    type Error = ValueError;

    #[inline]
    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, ValueError> {
        while self.replaced.last() == Some(&(self.len - self.left)) {
            self.replaced.pop();
            self.left -= 1;
            self.decoder.reader.skip()?;
            self.decoder.reader.skip()?;
        }
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        self.decoder.take(size_of::<K::Value>())?;
        self.key = self.decoder.reader.rest;
        self.decoder.reader.check_key()?;
        seed.deserialize(&mut *self.decoder).map(Some)
    }

    #[inline]
    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, ValueError> {
        self.decoder.take(size_of::<V::Value>())?;
        seed.deserialize(&mut *self.decoder).map_err(|error| self.at_key(error))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

/// The single entry of a map that represents an enum's variant with its content.
pub(super) struct VariantEntry<'a, 'de> {
    decoder: &'a mut Decoder<'de>,
    key: &'de [u8],
}

impl<'a, 'de> VariantEntry<'a, 'de> {
    pub(super) fn new(decoder: &'a mut Decoder<'de>) -> Self {
        Self { key: decoder.reader.rest, decoder }
    }

    fn content<T>(
        self,
        read: impl FnOnce(&mut Decoder<'de>) -> Result<T, ValueError>,
    ) -> Result<T, ValueError> {
        read(self.decoder).map_err(|error| error.at_key(&Reader::key_for_path(self.key)))
    }
}

impl<'de> de::EnumAccess<'de> for VariantEntry<'_, 'de> {
    type Error = ValueError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), ValueError> {
        Ok((seed.deserialize(&mut *self.decoder)?, self))
    }
}

impl<'de> de::VariantAccess<'de> for VariantEntry<'_, 'de> {
    type Error = ValueError;

    fn unit_variant(self) -> Result<(), ValueError> {
        self.content(|decoder| de::Deserialize::deserialize(decoder))
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, ValueError> {
        self.content(|decoder| seed.deserialize(decoder))
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, ValueError> {
        self.content(|decoder| de::Deserializer::deserialize_tuple(decoder, len, visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        self.content(|decoder| de::Deserializer::deserialize_struct(decoder, "", fields, visitor))
    }
}
