//! Settings, each defined once: the field, its default, its setter, its key in a file and its documentation.
//!
//! [`settings!`] generates all of them from one definition, so that `Restarts::default().failures(9)` and
//! `restarts = { failures = 9 }` set the same field of the same struct. The reference file and its page are generated
//! from the same definitions. `table.rs` reads the tables of a file, and `units.rs` defines how values are written in a
//! file. Both are behind the feature `config`. A crate that defines settings needs a feature of the same name.
//! [`setters!`] generates only setters, for options that no file sets. This crate knows no policy and no pool.
//!
//! ```text
//! settings! {
//!     /// How workers that fail are replaced.
//!     #[derive(Clone, Debug)]
//!     pub struct Restarts {
//!         /// How many workers may fail within `within`.
//!         failures: usize = 5,
//!         /// How long a failure counts.
//!         within: Duration as HumanTime = Duration::from_mins(1),
//!     }
//! }
//! ```
//!
//! | in a definition | means |
//! |---|---|
//! | `as HumanTime` | the type that reads and writes the value in a file, if it differs from serde's default |
//! | `=> "name"` | the key in a file, if it differs from the field's name |
//! | `@manual` | the setter is written by hand |
//! | `@into` | the setter takes `impl Into<T>`, so that an optional field accepts a value or `None` |
//! | `also { … }` | fields that cannot be set in a file |
//! | `setters on PoolOptions.settings` | the setters are methods of another struct, which has this struct as a field |
//! | `without setters` | a struct that is only read from files |
//! | `keys of T { … }` | the keys of a struct that is defined elsewhere |
//! | `notation Form of T` | the newtype `Form(T)` is how a file writes a `T` |
//! | `parts { … }`, `parts of T { … }` | fields that are settings themselves, with their keys in the same table |
//!
//! Each struct is `#[non_exhaustive]`, because settings are added. Other crates start from its default and use its
//! setters: `Retry::default().attempts(3)`.
//!
//! A doc comment may end with an example, as in ``Example: `ttl = "6h"`.`` The reference file shows the example,
//! commented out, for a key that is unset by default or whose default depends on the machine.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "config")]
mod table;
#[cfg(all(test, feature = "config"))]
mod tests;
#[cfg(feature = "config")]
mod units;

#[cfg(feature = "config")]
pub use table::{ReadSettings, SettingKey, SettingsTable, WriteSettings, deserialize, read_table};
#[cfg(feature = "config")]
pub use units::{ByteSize, HumanTime, Notation};

/// Defines setters that set the field of the same name and return the struct. They are for options that no file sets.
///
/// ```
/// #[derive(Default)]
/// pub struct Greeting {
///     name: Option<String>,
/// }
///
/// snakepit_settings::setters! {
///     impl Greeting;
///
///     /// Greets this person.
///     name(person: impl Into<String>) = Some(person.into());
/// }
///
/// assert_eq!(Greeting::default().name("Ada").name.as_deref(), Some("Ada"));
/// ```
#[macro_export]
macro_rules! setters {
    (impl $name:ident; $($(#[$doc:meta])* $field:ident($argument:ident: $type:ty) = $value:expr;)*) => {
        impl $name {
            $(
                $(#[$doc])*
                pub fn $field(mut self, $argument: $type) -> Self {
                    self.$field = $value;
                    self
                }
            )*
        }
    };
}

/// Defines settings. The crate documentation explains the syntax.
#[macro_export]
macro_rules! settings {
    (
        $(#[$attr:meta])* $vis:vis struct $name:ident { $($keys:tt)* }
        $(also { $($also:tt)* })? setters on $owner:ident.$part:ident
    ) => {
        $crate::settings!(@struct [$(#[$attr])*] [$vis] $name { $($keys)* } { $($($also)*)? });
        $crate::settings!(@setters of a part $owner $part { $($keys)* });
        $crate::settings!(@files $name { $($keys)* });
    };
    ($(#[$attr:meta])* $vis:vis struct $name:ident { $($keys:tt)* } without setters) => {
        $crate::settings!(@struct [$(#[$attr])*] [$vis] $name { $($keys)* } {});
        $crate::settings!(@read $name { $($keys)* } {});
        $crate::settings!(@deserialize $name);
    };
    (notation $notation:ident of $type:ty) => {
        impl $crate::Notation<$type> for $notation {
            fn value(self) -> $type {
                self.0
            }

            fn written(value: &$type) -> Self {
                Self(*value)
            }
        }
    };
    (parts of $name:ty { $($parts:tt)* }) => {
        $crate::settings!(@read $name {} { $($parts)* });
    };
    ($(#[$attr:meta])* $vis:vis struct $name:ident { $($keys:tt)* } $(also { $($also:tt)* })?) => {
        $crate::settings!(@struct [$(#[$attr])*] [$vis] $name { $($keys)* } { $($($also)*)? });
        $crate::settings!(@setters $name { $($keys)* });
        $crate::settings!(@files $name { $($keys)* });
    };
    (keys of $name:ty { $($keys:tt)* } $(parts { $($parts:tt)* })?) => {
        $crate::settings!(@read $name { $($keys)* } { $($($parts)*)? });
        $crate::settings!(@write $name { $($keys)* } { $($($parts)*)? });
    };

    (
        @struct [$(#[$attr:meta])*] [$vis:vis] $name:ident
        { $(
            $(#[doc = $doc:literal])* $(@$how:ident)?
            $field:ident: $type:ty $(as $notation:ty)? = $default:expr $(=> $key:literal)?
        ),* $(,)? }
        { $($(#[doc = $also_doc:literal])* $also:ident: $also_type:ty = $also_default:expr),* $(,)? }
    ) => {
        $(#[$attr])*
        #[non_exhaustive]
        $vis struct $name {
            $($(#[doc = $doc])* pub $field: $type,)*
            $($(#[doc = $also_doc])* pub $also: $also_type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* $($also: $also_default,)* }
            }
        }
    };

    (
        @setters $name:ident
        { $(
            $(#[doc = $doc:literal])* $(@$how:ident)?
            $field:ident: $type:ty $(as $notation:ty)? = $default:expr $(=> $key:literal)?
        ),* $(,)? }
    ) => {
        impl $name {
            $($crate::settings!(@setter [$($how)?] [$(#[doc = $doc])*] $field, $type, $default, self => self.$field);)*
        }
    };
    (
        @setters of a part $owner:ident $part:ident
        { $(
            $(#[doc = $doc:literal])* $(@$how:ident)?
            $field:ident: $type:ty $(as $notation:ty)? = $default:expr $(=> $key:literal)?
        ),* $(,)? }
    ) => {
        impl $owner {
            $(settings!(
                @setter [$($how)?] [$(#[doc = $doc])*] $field, $type, $default, self => self.$part.$field
            );)*
        }
    };
    (@setter [manual] $($rest:tt)*) => {};
    (@setter [into] [$(#[$doc:meta])*] $field:ident, $type:ty, $default:expr, $self:ident => $place:expr) => {
        $(#[$doc])*
        #[doc = concat!("\n\nThe default is `", stringify!($default), "`.")]
        pub fn $field(mut $self, $field: impl Into<$type>) -> Self {
            $place = $field.into();
            $self
        }
    };
    (@setter [] [$(#[$doc:meta])*] $field:ident, $type:ty, $default:expr, $self:ident => $place:expr) => {
        $(#[$doc])*
        #[doc = concat!("\n\nThe default is `", stringify!($default), "`.")]
        pub fn $field(mut $self, $field: $type) -> Self {
            $place = $field;
            $self
        }
    };

    (@files $name:ident { $($keys:tt)* }) => {
        #[cfg(feature = "config")]
        $crate::settings!(@read $name { $($keys)* } {});
        #[cfg(feature = "config")]
        $crate::settings!(@write $name { $($keys)* } {});
        #[cfg(feature = "config")]
        $crate::settings!(@deserialize $name);
        #[cfg(feature = "config")]
        $crate::settings!(@serialize $name);
    };
    (@deserialize $name:ident) => {
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::deserialize(deserializer)
            }
        }
    };
    (@serialize $name:ident) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut table = serializer.serialize_map(None)?;
                $crate::WriteSettings::write(self, &mut table)?;
                serde::ser::SerializeMap::end(table)
            }
        }
    };
    (
        @read $name:ty
        { $(
            $(#[doc = $doc:literal])* $(@$how:ident)?
            $field:ident: $type:ty $(as $notation:ty)? $(= $default:expr)? $(=> $key:literal)?
        ),* $(,)? }
        { $($part:ident: $part_type:ty),* $(,)? }
    ) => {
        impl $crate::ReadSettings for $name {
            fn keys() -> Vec<$crate::SettingKey> {
                let own = [$($crate::SettingKey {
                    name: $crate::settings!(@key $field $($key)?),
                    doc: &[$($doc),*],
                }),*];
                let parts: [Vec<$crate::SettingKey>; _] =
                    [$(<$part_type as $crate::ReadSettings>::keys()),*];
                own.into_iter().chain(parts.into_iter().flatten()).collect()
            }

            fn read<'de, A: serde::de::MapAccess<'de>>(
                &mut self,
                key: &str,
                table: &mut A,
            ) -> Result<bool, A::Error> {
                $(if key == $crate::settings!(@key $field $($key)?) {
                    self.$field = $crate::settings!(@value table, $type $(, $notation)?);
                    return Ok(true);
                })*
                $(if $crate::ReadSettings::read(&mut self.$part, key, table)? {
                    return Ok(true);
                })*
                Ok(false)
            }
        }
    };
    (
        @write $name:ty
        { $(
            $(#[doc = $doc:literal])* $(@$how:ident)?
            $field:ident: $type:ty $(as $notation:ty)? $(= $default:expr)? $(=> $key:literal)?
        ),* $(,)? }
        { $($part:ident: $part_type:ty),* $(,)? }
    ) => {
        impl $crate::WriteSettings for $name {
            fn write<M: serde::ser::SerializeMap>(&self, table: &mut M) -> Result<(), M::Error> {
                $(table.serialize_entry(
                    $crate::settings!(@key $field $($key)?),
                    $crate::settings!(@written self.$field, $type $(, $notation)?),
                )?;)*
                $($crate::WriteSettings::write(&self.$part, table)?;)*
                Ok(())
            }
        }
    };
    (@key $field:ident) => { stringify!($field) };
    (@key $field:ident $key:literal) => { $key };
    (@value $table:ident, $type:ty) => { $table.next_value::<$type>()? };
    (@value $table:ident, $type:ty, $notation:ty) => {
        $crate::Notation::<$type>::value($table.next_value::<$notation>()?)
    };
    (@written $value:expr, $type:ty) => { &$value };
    (@written $value:expr, $type:ty, $notation:ty) => {
        &<$notation as $crate::Notation<$type>>::written(&$value)
    };
}
