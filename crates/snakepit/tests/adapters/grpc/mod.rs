//! The adapter for workers that are gRPC servers.
//!
//! The tests need a Python with grpcio and protobuf, in `.venv` or named by `SNAKEPIT_TEST_PYTHON`.

mod calls;
mod foreign_workers;
mod forks;
mod logging;

use std::path::{Path, PathBuf};

use snakepit::PoolOptions;
use snakepit::adapter::{GrpcWorker, PythonWorker};

use crate::support;

/// Returns the interpreter that has what gRPC needs.
fn python() -> PathBuf {
    let own = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/bin/python");
    support::python_with_msgspec().unwrap_or_else(own)
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/workers").join(name)
}

fn worker() -> GrpcWorker {
    GrpcWorker::python(PythonWorker::new(file("over_grpc.py")).interpreter(python()))
}

fn pool() -> PoolOptions {
    snakepit::grpc(worker()).workers(1)
}
