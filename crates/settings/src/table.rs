//! Tables of a file, read key by key, so that several structs can share one.

use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};

/// A key of a table.
#[derive(Clone, Copy, Debug)]
pub struct SettingKey {
    /// Its name.
    pub name: &'static str,
    /// The lines of its documentation.
    pub doc: &'static [&'static str],
}

/// What a table of a file sets.
pub trait ReadSettings {
    /// Its keys, in the order of their definition.
    fn keys() -> Vec<SettingKey>;

    /// Reads the value of `key`, and says whether that is one of its keys.
    fn read<'de, A: MapAccess<'de>>(&mut self, key: &str, table: &mut A) -> Result<bool, A::Error>;
}

/// Settings that can be written as a table.
pub trait WriteSettings: ReadSettings {
    /// Writes all of its keys.
    fn write<M: SerializeMap>(&self, table: &mut M) -> Result<(), M::Error>;
}

/// Reads a table; a key that it does not mention keeps its default.
pub fn deserialize<'de, S, D>(deserializer: D) -> Result<S, D::Error>
where
    S: ReadSettings + Default,
    D: Deserializer<'de>,
{
    read_table(deserializer, S::default()).map(|(settings, _)| settings)
}

/// Reads a table over `settings`, and says which keys it mentions.
pub fn read_table<'de, S, D>(deserializer: D, settings: S) -> Result<(S, Vec<&'static str>), D::Error>
where
    S: ReadSettings,
    D: Deserializer<'de>,
{
    deserializer.deserialize_map(TableVisitor(settings))
}

struct TableVisitor<S>(S);

impl<'de, S: ReadSettings> Visitor<'de> for TableVisitor<S> {
    type Value = (S, Vec<&'static str>);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut table: A) -> Result<Self::Value, A::Error> {
        let (mut settings, mut given) = (self.0, Vec::new());
        let known = S::keys();
        while let Some(key) = table.next_key_seed(KnownKey(&known))? {
            settings.read(key, &mut table)?;
            given.push(key);
        }
        Ok((settings, given))
    }
}

/// Rejects an unknown key while it is read, so that the error points to its line.
struct KnownKey<'a>(&'a [SettingKey]);

impl<'de> DeserializeSeed<'de> for KnownKey<'_> {
    type Value = &'static str;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for KnownKey<'_> {
    type Value = &'static str;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<Self::Value, E> {
        let known = self.0.iter().map(|key| key.name);
        known.clone().find(|known| *known == name).ok_or_else(|| {
            // The same words as serde's own error, which lists static names only.
            let known: Vec<String> = known.map(|known| format!("`{known}`")).collect();
            E::custom(format_args!("unknown field `{name}`, expected one of {}", known.join(", ")))
        })
    }
}

/// Settings as a value inside another table: for a struct whose serde is not ours to implement.
#[derive(Default)]
pub struct SettingsTable<S>(pub S);

impl<'de, S: ReadSettings + Default> Deserialize<'de> for SettingsTable<S> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize(deserializer).map(Self)
    }
}

impl<S: WriteSettings> Serialize for SettingsTable<S> {
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        let mut table = serializer.serialize_map(None)?;
        self.0.write(&mut table)?;
        table.end()
    }
}
