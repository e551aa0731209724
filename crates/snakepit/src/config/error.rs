//! The errors of configuration files: the file, the line, the key, and the remedy.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use snakepit_core::similar_names;

/// The reason why a configuration cannot be used.
///
/// ```
/// use snakepit::{Config, ConfigError};
///
/// match Config::load("missing.toml") {
///     Ok(config) => println!("{} pools", config.pools().len()),
///     Err(ConfigError::Unreadable { path, source }) => eprintln!("{}: {source}", path.display()),
///     // The text has the file, the line, the key, and what would be right.
///     Err(error) => eprintln!("{error}"),
/// }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {}: check its path and permissions", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The file is not TOML, or a key or value in it is wrong.
    #[error("{}{}: {problem}", .path.display(), LineNumber(*.line))]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: Option<usize>,
        /// The key, the problem, and what would be right.
        problem: String,
    },
}

struct LineNumber(Option<usize>);

impl fmt::Display for LineNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |line| write!(f, ":{line}"))
    }
}

impl ConfigError {
    pub(super) fn syntax(path: &Path, text: &str, error: &toml::de::Error) -> Self {
        let problem = format!("this is not TOML: {}", one_line(error.message()));
        Self::Invalid { path: path.to_owned(), line: line(text, error), problem }
    }

    pub(super) fn content(
        path: &Path,
        text: &str,
        error: &serde_path_to_error::Error<toml::de::Error>,
    ) -> Self {
        let cause = error.inner();
        let problem = match unknown(cause.message()) {
            Some((key, known)) => unknown_key(&error.path().to_string(), key, &known),
            None => format!("{}: {}", error.path(), in_words(&one_line(cause.message()))),
        };
        Self::Invalid { path: path.to_owned(), line: line(text, cause), problem }
    }

    pub(super) fn without_pools(path: &Path) -> Self {
        let problem = "there is no pool: add a table [pool.NAME] with worker = \"worker.py\"".into();
        Self::Invalid { path: path.to_owned(), line: None, problem }
    }
}

#[cfg(all(feature = "loops", feature = "sqlite"))]
impl ConfigError {
    pub(super) fn unknown_pool(path: &Path, name: &str, pool: &str, pools: &[crate::PoolOptions]) -> Self {
        let known = similar_names::hint(pool, pools.iter().map(crate::PoolOptions::pool_name));
        let problem = format!("loop.{name}.pool: there is no pool `{pool}`; {known}");
        Self::Invalid { path: path.to_owned(), line: None, problem }
    }

    pub(super) fn unknown_loop(path: &Path, name: &str, loops: &[super::LoopConfig]) -> Self {
        let known = similar_names::hint(name, loops.iter().map(super::LoopConfig::name));
        Self::Invalid {
            path: path.to_owned(),
            line: None,
            problem: format!("there is no loop `{name}`; {known}"),
        }
    }

    pub(super) fn without_loops(path: &Path) -> Self {
        let problem =
            "there is no loop: add a table [loop.NAME] with mailbox = \"sqlite:mail.db\" and command = \"…\"";
        Self::Invalid { path: path.to_owned(), line: None, problem: problem.into() }
    }
}

fn line(text: &str, error: &toml::de::Error) -> Option<usize> {
    let before = text.get(..error.span()?.start)?;
    Some(before.matches('\n').count() + 1)
}

fn one_line(message: &str) -> String {
    message.lines().collect::<Vec<_>>().join(", ")
}

/// Replaces serde's terms by those of the file.
fn in_words(message: &str) -> String {
    if let Some(key) = message.strip_prefix("missing field ") {
        return format!("the key {key} is missing: add it");
    }
    if let Some(names) = message.strip_prefix("unknown variant ") {
        let mut names = names.split('`').skip(1).step_by(2);
        let value = names.next().unwrap_or_default();
        return format!(
            "unknown value `{value}`; the values here are {}",
            names.collect::<Vec<_>>().join(", ")
        );
    }
    let found = message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "));
    let Some((found, expected)) = found.and_then(|it| it.rsplit_once(", expected ")) else {
        return message.to_owned();
    };
    let expected = match expected {
        "usize" | "u8" | "u16" | "u32" | "u64" => "a whole number, 0 or above",
        "a nonzero usize" | "a nonzero u16" | "a nonzero u32" => "a whole number above 0",
        "i8" | "i16" | "i32" | "i64" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a string" => "a text in quotes",
        "a sequence" => "a list, such as [\"a\", \"b\"]",
        "a map" => "a table",
        other => other,
    };
    let found = match found.split_once(' ').unwrap_or((found, "")) {
        ("string", text) => format!("the text {text}"),
        ("integer" | "floating", number) => {
            format!("the number {}", number.trim_start_matches("point ").trim_matches('`'))
        }
        ("boolean", value) => value.trim_matches('`').to_owned(),
        ("sequence", _) => "a list".to_owned(),
        ("map", _) => "a table".to_owned(),
        _ => found.to_owned(),
    };
    format!("expected {expected}, found {found}")
}

/// Returns the unknown key and the known ones if serde's message is about them, as in "unknown field `a`, expected one
/// of `b`, `c`". Relies only on the backticks around the names.
pub(super) fn unknown(message: &str) -> Option<(&str, Vec<&str>)> {
    let mut names = message.strip_prefix("unknown field ")?.split('`').skip(1).step_by(2);
    let key = names.next()?;
    Some((key, names.collect()))
}

fn unknown_key(path: &str, key: &str, known: &[&str]) -> String {
    // The path may include the key.
    let place = path.strip_suffix(key).map_or(path, |place| place.trim_end_matches('.'));
    let place = if place.is_empty() || place == "." { String::new() } else { format!("{place}: ") };
    match similar_names::nearest(key, known.iter().copied()) {
        Some(nearest) => format!("{place}unknown key `{key}`; did you mean `{nearest}`?"),
        None => format!("{place}unknown key `{key}`; the keys here are {}", known.join(", ")),
    }
}
