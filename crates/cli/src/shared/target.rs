//! The pools that a command works with: a worker from the command line, or the pools of a configuration.

use std::path::Path;

use snakepit::adapter::PythonWorker;
use snakepit::{Config, PoolOptions, custody};

use crate::shared::failure::CliFailure;

/// The configuration to use if none is named.
pub(crate) const DEFAULT_CONFIG: &str = "snakepit.toml";

/// Names of workers begin with the name of their pool and have a limit.
const LONGEST_NAME: usize = 32;

/// How to speak to a worker that does not use the SDK's own socket.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum WireAdapter {
    /// Lines of JSON on the worker's standard streams (spec/stdio.md).
    Stdio,
    /// Routes on a port or socket that the worker announces.
    Http,
    /// spec/snakepit.proto on a socket that the worker announces; a Python file may use the SDK.
    #[cfg(feature = "grpc")]
    Grpc,
}

/// Reads the named configuration, or else ./snakepit.toml.
pub(crate) fn load_config(path: Option<&Path>, instead: &str) -> Result<Config, CliFailure> {
    if path.is_none() && !Path::new(DEFAULT_CONFIG).exists() {
        return Err(CliFailure::usage(format!("there is no {DEFAULT_CONFIG} here"))
            .hint(format!("{instead}; `snakepit init DIR` writes one")));
    }
    Config::load(path.unwrap_or(Path::new(DEFAULT_CONFIG))).map_err(|error| {
        CliFailure::usage_of(&error).hint("`snakepit init DIR` writes a file that lists every key")
    })
}

pub(crate) fn no_such_pool(path: Option<&Path>, config: &Config, name: &str) -> CliFailure {
    let path = path.unwrap_or(Path::new(DEFAULT_CONFIG)).display();
    let known: Vec<&str> = config.names().collect();
    CliFailure::usage(format!("{path} has no pool {name}"))
        .hint(format!("its pools are {}", known.join(", ")))
}

/// A pool and the configuration of custody.
pub(crate) struct CallTarget {
    pub(crate) pool: PoolOptions,
    pub(crate) custody: custody::CustodyOptions,
}

impl CallTarget {
    fn new(worker: &Path, pool: PoolOptions) -> Self {
        let stem = worker.file_stem().unwrap_or_default().to_string_lossy();
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
        let name: String = stem.chars().map(plain).take(LONGEST_NAME).collect();
        Self { pool: pool.name(name), custody: custody::CustodyOptions::default() }
    }

    /// Creates the target for a Python file or module that uses the SDK.
    pub(crate) fn python(worker: &Path) -> Result<Self, CliFailure> {
        let python = PythonWorker::new(worker);
        let hint = "-w names a Python file, or a module that can be imported from here";
        check_file(worker, python.file().as_deref(), hint)?;
        Ok(Self::new(worker, snakepit::python(python)))
    }

    /// Creates the target for a program or a Python file behind another adapter.
    pub(crate) fn program(worker: &Path, adapter: WireAdapter) -> Result<Self, CliFailure> {
        let file = std::path::absolute(worker).unwrap_or_else(|_| worker.to_owned());
        check_file(worker, Some(&file), "with --adapter, -w names a program or a Python file")?;
        let is_python = file.extension().is_some_and(|extension| extension == "py");
        let mut argv = vec![file.into_os_string()];
        if is_python {
            argv.insert(0, "python3".into());
        }
        let pool = match adapter {
            WireAdapter::Stdio => snakepit::stdio(argv),
            WireAdapter::Http => snakepit::http(argv),
            #[cfg(feature = "grpc")]
            WireAdapter::Grpc if is_python => snakepit::grpc(PythonWorker::new(worker)),
            #[cfg(feature = "grpc")]
            WireAdapter::Grpc => snakepit::grpc(snakepit::adapter::GrpcWorker::command(argv)),
        };
        Ok(Self::new(worker, pool))
    }

    /// Creates the target for a pool of a configuration, by default the first one.
    pub(crate) fn configured(path: Option<&Path>, name: Option<&str>) -> Result<Self, CliFailure> {
        let config = load_config(path, "name a worker with -w worker.py or a configuration with -c FILE")?;
        let pool = match name {
            Some(name) => config.pool(name).ok_or_else(|| no_such_pool(path, &config, name))?,
            // `load_config` rejects a configuration without a pool.
            None => config.pools().first().ok_or_else(|| no_such_pool(path, &config, ""))?,
        };
        Ok(Self { pool: pool.clone(), custody: config.custody().clone() })
    }
}

fn check_file(worker: &Path, file: Option<&Path>, hint: &str) -> Result<(), CliFailure> {
    if worker.is_dir() {
        let place = worker.display().to_string();
        let file = Path::new(place.trim_end_matches('/')).join("worker.py");
        return Err(CliFailure::usage(format!("{place} is a directory, not a worker"))
            .hint(format!("name a file in it, such as {}", file.display())));
    }
    if file.is_some_and(|file| !file.is_file()) {
        return Err(CliFailure::usage(format!("there is no worker file {}", worker.display())).hint(hint));
    }
    Ok(())
}
