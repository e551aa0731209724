//! The interpreter that everything here is measured with, and what it can import.

use std::path::{Path, PathBuf};
use std::process::Command;

use snakepit_proving::bench::Outcome;

/// An interpreter, resolved: a launcher in front of it would cost more than what is measured.
pub(crate) struct Python {
    path: PathBuf,
}

impl Python {
    /// `SNAKEPIT_BENCH_PYTHON`, else the environment that `bench-venv` makes beside the build, else `python3`.
    pub(crate) fn find() -> Outcome<Self> {
        if let Some(path) = std::env::var_os("SNAKEPIT_BENCH_PYTHON") {
            return Ok(Self { path: path.into() });
        }
        let exe = std::env::current_exe()?;
        let venv = exe.ancestors().nth(2).map(|target| target.join("bench-venv/bin/python"));
        if let Some(path) = venv.filter(|path| path.exists()) {
            return Ok(Self { path });
        }
        eprintln!("no bench-venv: crates/proving/bench-venv makes it; until then python3 alone is measured");
        let printed = ask(Path::new("python3"), "import sys; print(sys.executable)")?;
        Ok(Self { path: printed.into() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A script of ours, as a file: `multiprocessing` wants to import it again.
    pub(crate) fn script(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bin/bench_calls/python").join(name)
    }

    /// Whether a module can be imported; otherwise the sentence for its row.
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

    /// The versions of everything that has a row.
    pub(crate) fn describe(&self) -> Outcome<String> {
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

fn ask(python: &Path, code: &str) -> Outcome<String> {
    let output = Command::new(python).args(["-c", code]).output()?;
    if !output.status.success() {
        return Err(format!("{}: {}", python.display(), String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
