//! Workers that are gRPC servers, with the unchanged file of the Python adapter. Needs a Python with grpcio and
//! protobuf, in `.venv` or named by `SNAKEPIT_TEST_PYTHON`.
//!
//! About `crates/adapters/src/grpc/mod.rs` and `crates/testing/src/adapters/mod.rs`.

use std::path::{Path, PathBuf};

use snakepit::PoolOptions;
use snakepit::adapter::PythonWorker;
use snakepit::conformance::{Subject, Way};

struct Grpc;

impl Subject for Grpc {
    fn pool(&self, way: Way) -> PoolOptions {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let named = std::env::var_os("SNAKEPIT_TEST_PYTHON").filter(|python| !python.is_empty());
        let python = named.map_or_else(|| here.join("../../.venv/bin/python"), PathBuf::from);
        let worker = PythonWorker::new(here.join("tests/adapters/conformance/worker.py")).interpreter(python);
        snakepit::grpc(worker.env("CONFORMANCE_WAY", way.word()))
    }
}

snakepit::conformance_tests!(Grpc);
