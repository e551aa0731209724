//! Who is called: a worker named on the command line, or a pool of a configuration.

use std::path::Path;

use snakepit::custody;
use snakepit::{Config, Pool, PythonWorker};

use super::Args;
use crate::say::{Failure, USAGE};

/// The configuration that is used when none is named.
pub(crate) const HOME: &str = "snakepit.toml";

/// Names of workers are bounded; a pool's name is a part of them.
const LONGEST_NAME: usize = 32;

/// How a worker is spoken to, if not over the SDK's own socket.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum AdapterName {
    /// Lines of JSON on its standard streams (spec/stdio.md).
    Stdio,
    /// Routes on a port or socket that it announces.
    Http,
    /// spec/snakepit.proto, on a socket that it announces; a Python file may use our SDK.
    #[cfg(feature = "grpc")]
    Grpc,
}

fn is_directory(worker: &Path) -> Failure {
    let place = worker.display().to_string();
    let file = Path::new(place.trim_end_matches('/')).join("worker.py");
    Failure::plain(format!("{place} is a directory, and no worker"))
        .status(USAGE)
        .hint(format!("-w names a file in it, such as {}", file.display()))
}

/// What a worker's pool is called.
fn name_of(worker: &Path) -> String {
    let stem = worker.file_stem().unwrap_or_default().to_string_lossy();
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    stem.chars().map(plain).take(LONGEST_NAME).collect()
}

pub(crate) struct Target {
    pub(crate) pool: Pool,
    pub(crate) custody: custody::Config,
}

impl Target {
    pub(super) fn find(args: &Args) -> Result<Self, Failure> {
        let mut target = match (&args.worker, &args.config) {
            (Some(worker), _) => match args.adapter {
                Some(adapter) => Self::program(worker, adapter)?,
                None => Self::worker(worker)?,
            },
            (None, Some(config)) => Self::configured(config, args.pool.as_deref())?,
            (None, None) if Path::new(HOME).exists() => {
                Self::configured(Path::new(HOME), args.pool.as_deref())?
            }
            (None, None) => {
                return Err(Failure::plain(format!("there is no {HOME} here, and no worker is named"))
                    .status(USAGE)
                    .hint("name a worker with -w worker.py or a configuration with -c FILE; `snakepit init DIR` makes both"));
            }
        };
        if args.state_dir.is_some() {
            target.custody.state_dir.clone_from(&args.state_dir);
        }
        // One call needs one worker.
        target.pool = target.pool.workers(1);
        if args.debug {
            target.pool = target.pool.debug(true);
        }
        Ok(target)
    }

    pub(crate) fn worker(worker: &Path) -> Result<Self, Failure> {
        if worker.is_dir() {
            return Err(is_directory(worker));
        }
        let python = PythonWorker::new(worker);
        if python.file().is_some_and(|file| !file.is_file()) {
            return Err(Failure::plain(format!("there is no worker file {}", worker.display()))
                .status(USAGE)
                .hint("-w names a Python file, or a module that can be imported from here"));
        }
        let pool = Pool::python(python).name(name_of(worker));
        Ok(Self { pool, custody: custody::Config::default() })
    }

    /// A worker that is spoken to in another way.
    fn program(worker: &Path, adapter: AdapterName) -> Result<Self, Failure> {
        let file = std::path::absolute(worker).unwrap_or_else(|_| worker.to_owned());
        if file.is_dir() {
            return Err(is_directory(worker));
        }
        if !file.is_file() {
            return Err(Failure::plain(format!("there is no worker file {}", worker.display()))
                .status(USAGE)
                .hint("with --adapter, -w names a program, or a Python file"));
        }
        let is_python = file.extension().is_some_and(|extension| extension == "py");
        let argv = if is_python {
            vec!["python3".into(), file.into_os_string()]
        } else {
            vec![file.into_os_string()]
        };
        let pool = match adapter {
            AdapterName::Stdio => Pool::stdio(argv),
            AdapterName::Http => Pool::http(argv),
            #[cfg(feature = "grpc")]
            AdapterName::Grpc if is_python => Pool::grpc(PythonWorker::new(worker)),
            #[cfg(feature = "grpc")]
            AdapterName::Grpc => Pool::grpc(snakepit::GrpcWorker::command(argv)),
        };
        Ok(Self { pool: pool.name(name_of(worker)), custody: custody::Config::default() })
    }

    fn configured(path: &Path, name: Option<&str>) -> Result<Self, Failure> {
        let config = Config::load(path).map_err(|error| {
            Failure::of(&error).status(USAGE).hint("`snakepit init DIR` writes a file that lists every key")
        })?;
        let pool = match name {
            Some(name) => config.pool(name),
            None => config.pools().first(),
        };
        let Some(pool) = pool else {
            let known: Vec<&str> = config.names().collect();
            let (name, path) = (name.unwrap_or_default(), path.display());
            return Err(Failure::plain(format!("{path} has no pool {name}"))
                .status(USAGE)
                .hint(format!("it has {}", known.join(", "))));
        };
        Ok(Self { pool: pool.clone(), custody: config.custody().clone() })
    }
}
