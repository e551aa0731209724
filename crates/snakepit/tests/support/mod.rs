//! An engine with a state directory of its own, which must be empty of runs when the test ends.
#![allow(dead_code, clippy::allow_attributes, reason = "every test file uses its own part of this one")]

use std::ops::Deref;
use std::path::PathBuf;

use snakepit::custody::Config;
use snakepit::{Builder, Pool, PythonWorker, Snakepit};
use tempfile::TempDir;

/// A worker of the tests.
pub(crate) fn worker(file: &str) -> Pool {
    Pool::python(python(file))
}

/// The same, to be changed before it becomes a pool.
pub(crate) fn python(file: &str) -> PythonWorker {
    PythonWorker::new(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/workers").join(file))
}

pub(crate) struct Pit {
    pit: Snakepit,
    home: TempDir,
}

impl Pit {
    pub(crate) async fn start(pool: Pool) -> Self {
        Self::build(Snakepit::builder().pool(pool)).await
    }

    pub(crate) async fn build(builder: Builder) -> Self {
        let home = tempfile::tempdir().expect("a directory");
        let pit =
            builder.custody(config(&home)).start().await.unwrap_or_else(|error| panic!("{}", chain(&error)));
        Self { pit, home }
    }

    /// Stops it, and proves that nothing is left.
    pub(crate) async fn end(self) {
        self.pit.stop().await;
        let runs = self.home.path().join("runs");
        let left: Vec<_> =
            std::fs::read_dir(&runs).expect("runs").map(|run| run.expect("a run").file_name()).collect();
        let left: Vec<_> = left.into_iter().filter(|name| !name.to_string_lossy().starts_with('.')).collect();
        assert!(left.is_empty(), "runs are left: {left:?}");
    }
}

pub(crate) fn config(home: &TempDir) -> Config {
    Config { state_dir: Some(home.path().to_owned()), ..Config::default() }
}

impl Deref for Pit {
    type Target = Snakepit;

    fn deref(&self) -> &Snakepit {
        &self.pit
    }
}

/// An error with its sources.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
