//! The macro that turns the list of events into an enum with names, levels and fields, its delivery to `tracing`, and
//! the table of the documentation.
//!
//! An entry defines one event:
//!
//! ```text
//! Name = "snakepit.what.happened", Debug, "When it happens." {
//!     field: Type = "what it says",
//! }
//! ```
//!
//! `Debug (Warn if *killed > 0)` makes the event a warning if the condition on its fields is true.

/// The urgency of an event of the catalog.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Level {
    /// An operator should look at the event.
    Warn = 1,
    /// An engine, a pool or a worker starts, changes or ends.
    Info = 2,
    /// The event happens all the time, mostly to single calls, whose callers get the error anyway.
    Debug = 3,
}

impl Level {
    /// Returns the name of the level.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }

    /// Returns the filter of `tracing` that admits the level.
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
    /// The name of the event.
    pub name: &'static str,
    /// The level, unless the fields make the event a warning.
    pub level: Level,
    /// Whether the fields can make the event a warning.
    pub may_warn: bool,
    /// When the event happens.
    pub when: &'static str,
    /// The fields of the event.
    pub fields: &'static [FieldEntry],
}

/// A field of an event, for documentation.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct FieldEntry {
    /// The name of the field.
    pub name: &'static str,
    /// The type: `text`, `integer`, `float`, `bool` or `duration`, with a question mark if the value may be absent.
    pub kind: &'static str,
    /// What the field contains.
    pub meaning: &'static str,
}

macro_rules! catalog {
    ($(
        $variant:ident = $name:literal, $level:ident $((Warn if $louder:expr))?, $when:literal {
            $($field:ident: $type:ty = $meaning:literal,)*
        }
    )*) => {
        /// Something that happened. `docs/telemetry.md` has the same list.
        ///
        /// ```no_run
        /// use snakepit::telemetry::{Event, Level, subscribe_to};
        ///
        /// # async fn example() {
        /// let mut events = subscribe_to(Level::Info);
        /// while let Some(event) = events.next().await {
        ///     match event {
        ///         Event::WorkerDied { pool, signal, .. } => println!("a worker of {pool} died by signal {signal:?}"),
        ///         other => println!("{} {:?}", other.name(), other.fields()),
        ///     }
        /// }
        /// # }
        /// ```
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
            /// Returns the name of the event, which never changes.
            pub fn name(&self) -> &'static str {
                match self {$(
                    Self::$variant { .. } => $name,
                )*}
            }

            /// Returns the level of the event.
            #[expect(unused_variables, reason = "few events look at their fields")]
            pub fn level(&self) -> Level {
                match self {$(
                    Self::$variant { $($field,)* } => {
                        $(if $louder { return Level::Warn; })?
                        Level::$level
                    }
                )*}
            }

            /// Returns the fields by name, in the order of the table.
            pub fn fields(&self) -> Vec<(&'static str, FieldValue<'_>)> {
                match self {$(
                    Self::$variant { $($field,)* } => vec![$((stringify!($field), Field::value($field)),)*],
                )*}
            }

            /// Sends the event to `tracing`, with a constant message and typed fields.
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
