//! A host that embeds the engine and ends in every possible way. Tests send it signals and observe it.
//!
//! `proving-embedder WAY key=value …`: `WAY` is one way to live and to end. Everything that happens is a line on
//! standard output, written without the buffer of std. A line that begins with `{` is an event of the lifecycle.

mod deaths;
mod engines;
mod forks;
mod logs;
mod scripts;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use snakepit::custody::CustodyOptions;
use snakepit::{Builder, Snakepit, telemetry};

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let way = words.next().unwrap_or_default();
    let options = EmbedderOptions::read(words);
    write_events();
    match way.as_str() {
        "script" => scripts::one(&options),
        "scripts" => scripts::many(&options),
        "own-pools" => scripts::with_own_pools(&options),
        "death" => deaths::die(&options),
        "fork" => forks::fork(&options),
        "engines" => engines::obey(&options),
        _ => {
            tell(&format!("no such way: {way}"));
            ExitCode::from(2)
        }
    }
}

/// The options on the command line.
struct EmbedderOptions(BTreeMap<String, String>);

impl EmbedderOptions {
    fn read(words: impl Iterator<Item = String>) -> Self {
        let pair = |word: String| match word.split_once('=') {
            Some((key, value)) => (key.to_owned(), value.to_owned()),
            None => (word, String::new()),
        };
        Self(words.map(pair).collect())
    }

    fn get(&self, key: &str) -> &str {
        self.0.get(key).map_or("", String::as_str)
    }

    fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    fn millis(&self, key: &str) -> Option<Duration> {
        self.0.get(key).map(|text| Duration::from_millis(text.parse().expect("milliseconds")))
    }

    /// Creates a runtime of the requested flavor.
    fn runtime(&self) -> tokio::runtime::Runtime {
        let mut builder = match self.get("runtime") {
            "current" => tokio::runtime::Builder::new_current_thread(),
            _ => tokio::runtime::Builder::new_multi_thread(),
        };
        builder.enable_all().build().expect("a runtime")
    }

    /// Returns an engine with one pool of one worker that can do everything wrong.
    fn engine(&self) -> Builder {
        let mut config = CustodyOptions::default();
        if let Some(grace) = self.millis("term") {
            config.cleanup_on_stop_timeout_ms = grace.as_millis() as u64;
        }
        let file = match self.get("worker") {
            "slow" => SLOW,
            "deaf" => DEAF,
            _ => HOSTILE,
        };
        Snakepit::builder().pool(snakepit::python(file).workers(1)).custody(config)
    }
}

/// A worker with commands that go wrong in every way.
const HOSTILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../snakepit/tests/workers/hostile.py");
/// A worker that never becomes ready.
const SLOW: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/bin/embedder/slow.py");

/// A worker that only KILL ends.
const DEAF: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/bin/embedder/deaf.py");

/// Writes a line in one piece, even if other processes write too.
fn tell(line: &str) {
    let line = format!("{line}\n");
    // A test that has stopped listening is about to kill this process.
    let _ = rustix::io::write(rustix::stdio::stdout(), line.as_bytes());
}

fn write_events() {
    telemetry::observe(|event| {
        let told = ["snakepit.script.", "snakepit.cleanup."];
        if told.iter().any(|it| event.name().starts_with(it))
            && let Ok(line) = serde_json::to_string(event)
        {
            tell(&line);
        }
    });
}

fn hang() -> ! {
    loop {
        std::thread::park();
    }
}
