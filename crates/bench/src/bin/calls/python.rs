//! The interpreter that all participants run, and the modules that it can import.

use std::path::{Path, PathBuf};
use std::process::Command;

use snakepit_bench::{BenchResult, python};

/// The path of the interpreter itself. A launcher would cost more than what is measured.
pub(crate) struct BenchPython {
    path: PathBuf,
}

impl BenchPython {
    /// Finds the environment of the benchmarks, or else `python3`.
    pub(crate) fn find() -> BenchResult<Self> {
        if let Some(path) = python::environment()? {
            return Ok(Self { path });
        }
        eprintln!("no bench-venv: crates/bench/bench-venv makes it; until then only python3 is measured");
        let printed = ask(Path::new("python3"), "import sys; print(sys.executable)")?;
        Ok(Self { path: printed.into() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of a script of this benchmark. It is a file because `multiprocessing` imports it again.
    pub(crate) fn script(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bin/calls/python").join(name)
    }

    /// Checks whether a module can be imported. The error is the text for its row.
    pub(crate) fn has(&self, module: &str) -> Result<(), String> {
        let found = ask(
            &self.path,
            &format!("import importlib.util as u; print(u.find_spec('{module}') is not None)"),
        );
        match found.as_deref() {
            Ok("True") => Ok(()),
            _ => Err(format!("{module} is not installed")),
        }
    }

    /// Returns the versions of everything that has a row.
    pub(crate) fn describe(&self) -> BenchResult<String> {
        let versions = ask(
            &self.path,
            "import platform, importlib.metadata as m\n\
             def v(n):\n\
             \ttry: return n + ' ' + m.version(n)\n\
             \texcept m.PackageNotFoundError: return n + ' is not installed'\n\
             names = ['msgspec', 'grpcio', 'protobuf', 'mosec', 'ray', 'celery']\n\
             print('Python ' + platform.python_version() + ', ' + ', '.join(map(v, names)))",
        )?;
        Ok(format!("**Versions**: {versions}."))
    }
}

fn ask(python: &Path, code: &str) -> BenchResult<String> {
    let output = Command::new(python).args(["-c", code]).output()?;
    if !output.status.success() {
        return Err(format!("{}: {}", python.display(), String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
