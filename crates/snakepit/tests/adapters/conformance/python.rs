//! Workers in Python, with the SDK that the library carries.
//!
//! About `crates/adapters/src/python/mod.rs` and `crates/testing/src/adapters/mod.rs`.

use std::path::PathBuf;

use snakepit::PoolOptions;
use snakepit::adapter::PythonWorker;
use snakepit::conformance::{Subject, Way};

struct Python;

impl Subject for Python {
    fn pool(&self, way: Way) -> PoolOptions {
        let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/adapters/conformance/worker.py");
        snakepit::python(PythonWorker::new(file).env("CONFORMANCE_WAY", way.word()))
    }
}

snakepit::conformance_tests!(Python);
