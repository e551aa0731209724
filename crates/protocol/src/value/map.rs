//! [`Map`]: the entries of a map in order.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::ops::Index;

use super::Value;

/// The entries of a map, in the order in which they were inserted. Every key is unique.
///
/// Intended for small maps: a look-up scans the entries. To look up many keys of a large map, decode into a `HashMap`.
///
/// Two maps are equal if they have the same entries, in any order.
#[derive(Clone, Default)]
pub struct Map {
    entries: Vec<(Value, Value)>,
}

/// The largest number of entries that are checked for duplicates by comparing all pairs.
const FEW: usize = 8;

impl Map {
    /// Creates an empty map.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a map from many entries. If a key occurs twice, the last value counts.
    pub(super) fn from_entries(entries: Vec<(Value, Value)>) -> Self {
        if entries.len() > FEW {
            return Self { entries: without_doubles(entries) };
        }
        let unique =
            |index: usize| entries[..index].iter().all(|(key, _)| Key(key) != Key(&entries[index].0));
        if (1..entries.len()).all(unique) {
            return Self { entries };
        }
        let mut map = Self::new();
        for (key, value) in entries {
            map.insert(key, value);
        }
        map
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Reports whether the map has no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the value of a text key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries
            .iter()
            .find(|(it, _)| matches!(it, Value::Str(name) if name == key))
            .map(|(_, value)| value)
    }

    /// Returns the value of a key of any kind.
    pub fn get_key(&self, key: &Value) -> Option<&Value> {
        self.entries.iter().find(|(it, _)| Key(it) == Key(key)).map(|(_, value)| value)
    }

    /// Inserts an entry. Returns the previous value of the key.
    pub fn insert(&mut self, key: impl Into<Value>, value: impl Into<Value>) -> Option<Value> {
        let (key, value) = (key.into(), value.into());
        if let Some((_, old)) = self.entries.iter_mut().find(|(it, _)| Key(it) == Key(&key)) {
            return Some(std::mem::replace(old, value));
        }
        self.entries.push((key, value));
        None
    }

    /// Removes the entry of a text key and returns its value.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        let index = self.entries.iter().position(|(it, _)| it.as_str() == Some(key))?;
        Some(self.entries.remove(index).1)
    }

    /// Iterates over the entries in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Value, &Value)> {
        self.entries.iter().map(|(key, value)| (key, value))
    }
}

impl PartialEq for Map {
    fn eq(&self, other: &Self) -> bool {
        if self.len() != other.len() {
            return false;
        }
        if self.entries == other.entries {
            return true;
        }
        let others: HashMap<_, _> = other.iter().map(|(key, value)| (Key(key), value)).collect();
        self.iter().all(|(key, value)| others.get(&Key(key)) == Some(&value))
    }
}

/// Removes duplicate keys. Each key keeps its first position and its last value.
fn without_doubles(entries: Vec<(Value, Value)>) -> Vec<(Value, Value)> {
    let mut first = HashMap::with_capacity(entries.len());
    let mut moves = Vec::new();
    for (index, (key, _)) in entries.iter().enumerate() {
        let before = *first.entry(Key(key)).or_insert(index);
        if before != index {
            moves.push((index, before));
        }
    }
    if moves.is_empty() {
        return entries;
    }
    let mut entries: Vec<_> = entries.into_iter().map(Some).collect();
    for (from, to) in moves {
        if let (Some((_, value)), Some(target)) = (entries[from].take(), entries[to].as_mut()) {
            target.1 = value;
        }
    }
    entries.into_iter().flatten().collect()
}

/// A value as a key. Compares like the value, except that NaN equals NaN, so that a key can be found again.
struct Key<'a>(&'a Value);

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self.0, other.0) {
            (Value::Str(a), Value::Str(b)) => a == b,
            (Value::Float(a), Value::Float(b)) => float_key(*a) == float_key(*b),
            (Value::List(a), Value::List(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| Key(a) == Key(b))
            }
            (a, b) => a == b,
        }
    }
}

impl Eq for Key<'_> {}

impl Hash for Key<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self.0).hash(state);
        match self.0 {
            Value::Nil => {}
            Value::Bool(value) => value.hash(state),
            Value::Int(number) => number.hash(state),
            Value::BigInt(number) => number.hash(state),
            Value::Float(number) => float_key(*number).hash(state),
            Value::Str(text) => text.hash(state),
            Value::Bytes(bytes) => bytes.hash(state),
            Value::List(list) => list.iter().for_each(|it| Key(it).hash(state)),
            // A map is never a key on the wire. If it is one here, equality tells maps of the same length apart.
            Value::Map(map) => map.len().hash(state),
            Value::DateTime(time) => time.hash(state),
            Value::NaiveDateTime(time) => time.hash(state),
        }
    }
}

fn float_key(number: f64) -> u64 {
    // Both zeros are the same key, and so are all NaNs.
    if number == 0.0 {
        0
    } else if number.is_nan() {
        f64::NAN.to_bits()
    } else {
        number.to_bits()
    }
}

impl<K: Into<Value>, V: Into<Value>> FromIterator<(K, V)> for Map {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        Self::from_entries(entries.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }
}

impl<K: Into<Value>, V: Into<Value>, const N: usize> From<[(K, V); N]> for Map {
    fn from(entries: [(K, V); N]) -> Self {
        entries.into_iter().collect()
    }
}

impl IntoIterator for Map {
    type Item = (Value, Value);
    type IntoIter = std::vec::IntoIter<(Value, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

impl Index<&str> for Map {
    type Output = Value;

    /// Returns nil if there is no such key.
    fn index(&self, key: &str) -> &Value {
        self.get(key).unwrap_or(&Value::Nil)
    }
}
