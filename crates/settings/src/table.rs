//! Reads the tables of a file key by key, so that several structs can share one table.

use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};

/// A key of a table.
#[derive(Clone, Copy, Debug)]
pub struct SettingKey {
    /// The name of the key.
    pub name: &'static str,
    /// The lines of its documentation.
    pub doc: &'static [&'static str],
}

/// Settings that can be read from a table of a file.
pub trait ReadSettings {
    /// Returns the keys in the order of their definition.
    fn keys() -> Vec<SettingKey>;

    /// Reads the value of `key`. Returns false, and reads nothing, if these settings have no such key.
    fn read<'de, A: MapAccess<'de>>(&mut self, key: &str, table: &mut A) -> Result<bool, A::Error>;
}

/// Settings that can be written as a table.
pub trait WriteSettings: ReadSettings {
    /// Writes all keys and their values.
    fn write<M: SerializeMap>(&self, table: &mut M) -> Result<(), M::Error>;
}

/// Reads a table. Keys that are missing from the table keep their defaults.
pub fn deserialize<'de, S, D>(deserializer: D) -> Result<S, D::Error>
where
    S: ReadSettings + Default,
    D: Deserializer<'de>,
{
    read_table(deserializer, S::default()).map(|(settings, _)| settings)
}

/// Reads a table into `settings`. Also returns the keys that the table contains.
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
            // Uses the wording of serde's own error, whose constructor accepts only a static list of names.
            let known: Vec<String> = known.map(|known| format!("`{known}`")).collect();
            E::custom(format_args!("unknown field `{name}`, expected one of {}", known.join(", ")))
        })
    }
}

/// Settings as a value inside another table, for a struct that cannot implement serde's traits itself.
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
