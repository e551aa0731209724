//! The pool that `bench-lifecycle` and `bench-supervision` measure.

use std::path::{Path, PathBuf};

use snakepit::PoolOptions;
use snakepit::adapter::PythonWorker;

/// Returns workers with the commands of `worker.py`.
pub fn python_pool() -> PoolOptions {
    snakepit::python(PythonWorker::new(worker_script()).interpreter(interpreter())).name("bench")
}

/// Returns the path of the script that the workers of the pool run.
pub fn worker_script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/worker.py")
}

/// Returns `SNAKEPIT_TEST_PYTHON`, or else `python3`.
pub fn interpreter() -> PathBuf {
    std::env::var_os("SNAKEPIT_TEST_PYTHON").map_or_else(|| "python3".into(), PathBuf::from)
}
