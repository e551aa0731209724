//! The macro that turns the list of events into an enum, its names, levels and fields, its delivery to `tracing`, and the
//! table of the documentation.
//!
//! One entry is one event:
//!
//! ```text
//! Name = "snakepit.what.happened", Debug, "When it happens." {
//!     field: Type = "what it says",
//! }
//! ```
//!
//! `Debug (Warn if *killed > 0)` is a warning if the condition on its fields holds.

/// How urgent an event of the catalog is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Level {
    /// Needs attention.
    Warn = 1,
    /// Engines, pools and workers come and go.
    Info = 2,
    /// Happens all the time, mostly to single calls, whose callers get the error anyway.
    Debug = 3,
}

impl Level {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }

    /// The filter of `tracing` that admits it.
    pub(crate) fn filter(self) -> tracing::level_filters::LevelFilter {
        use tracing::level_filters::LevelFilter;
        match self {
            Self::Warn => LevelFilter::WARN,
            Self::Info => LevelFilter::INFO,
            Self::Debug => LevelFilter::DEBUG,
        }
    }
}

/// An event of the catalog, for documentation.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct EventEntry {
    /// Its name.
    pub name: &'static str,
    /// Its level, unless its fields make it a warning.
    pub level: Level,
    /// Whether its fields can make it a warning.
    pub may_warn: bool,
    /// When it happens.
    pub when: &'static str,
    /// What it says.
    pub fields: &'static [FieldEntry],
}

/// A field of an event, for documentation.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct FieldEntry {
    /// Its name.
    pub name: &'static str,
    /// `text`, `integer`, `float`, `bool` or `duration`; with a question mark if it may be absent.
    pub kind: &'static str,
    /// What it says.
    pub meaning: &'static str,
}

macro_rules! catalog {
    ($(
        $variant:ident = $name:literal, $level:ident $((Warn if $louder:expr))?, $when:literal {
            $($field:ident: $type:ty = $meaning:literal,)*
        }
    )*) => {
        /// Something that happened. `docs/telemetry.md` has the same list.
        #[derive(Clone, Debug)]
        #[non_exhaustive]
        pub enum Event {$(
            #[doc = $when]
            $variant {$(
                #[doc = $meaning]
                $field: $type,
            )*},
        )*}

        /// All events.
        pub const CATALOG: &[EventEntry] = &[$(
            EventEntry {
                name: $name,
                level: Level::$level,
                may_warn: false $(|| !stringify!($louder).is_empty())?,
                when: $when,
                fields: &[$(
                    FieldEntry { name: stringify!($field), kind: <$type as Field>::KIND, meaning: $meaning },
                )*],
            },
        )*];

        impl Event {
            /// Its name, which never changes.
            pub fn name(&self) -> &'static str {
                match self {$(
                    Self::$variant { .. } => $name,
                )*}
            }

            /// Its level.
            #[expect(unused_variables, reason = "few events look at their fields")]
            pub fn level(&self) -> Level {
                match self {$(
                    Self::$variant { $($field,)* } => {
                        $(if $louder { return Level::Warn; })?
                        Level::$level
                    }
                )*}
            }

            /// Its fields, by name, in the order of the table.
            pub fn fields(&self) -> Vec<(&'static str, FieldValue<'_>)> {
                match self {$(
                    Self::$variant { $($field,)* } => vec![$((stringify!($field), Field::value($field)),)*],
                )*}
            }

            /// Sends it to `tracing`: a constant message, and typed fields.
            pub(crate) fn trace(&self) {
                match self {$(
                    Self::$variant { $($field,)* } => {
                        let warns = false $(|| $louder)?;
                        if warns {
                            catalog!(@trace Warn, $name, $when, $($field)*);
                        } else {
                            catalog!(@trace $level, $name, $when, $($field)*);
                        }
                    }
                )*}
            }
        }
    };
    (@trace Warn, $($rest:tt)*) => { catalog!(@event tracing::Level::WARN, $($rest)*) };
    (@trace Info, $($rest:tt)*) => { catalog!(@event tracing::Level::INFO, $($rest)*) };
    (@trace Debug, $($rest:tt)*) => { catalog!(@event tracing::Level::DEBUG, $($rest)*) };
    (@event $level:expr, $name:literal, $when:literal, $($field:ident)*) => {
        tracing::event!(
            target: "snakepit",
            $level,
            { event = $name, $($field = Field::traced($field),)* },
            $when
        )
    };
}
pub(crate) use catalog;
