//! The Python environment that the benchmarks measure with.

use std::path::PathBuf;

use crate::BenchResult;

/// The variable that names another interpreter.
pub const VARIABLE: &str = "SNAKEPIT_BENCH_PYTHON";

/// Returns `SNAKEPIT_BENCH_PYTHON`, or else the environment that `crates/bench/bench-venv` creates beside the build, or
/// else `None`.
pub fn environment() -> BenchResult<Option<PathBuf>> {
    if let Some(path) = std::env::var_os(VARIABLE) {
        return Ok(Some(path.into()));
    }
    let exe = std::env::current_exe()?;
    let venv = exe.ancestors().nth(2).map(|target| target.join("bench-venv/bin/python"));
    Ok(venv.filter(|path| path.exists()))
}
