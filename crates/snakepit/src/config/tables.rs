//! The tables of the file, and their conversion to settings.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};

use super::environment::{InstallKeys, RequirementKeys};
use super::foreign::Foreign;
#[cfg(feature = "http")]
use super::http::HttpKeys;
#[cfg(feature = "grpc")]
use crate::adapter::GrpcWorker;
use crate::adapter::python::is_file;
use crate::adapter::{Program, PythonWorker};
use crate::policy::{Recycling, Sizing};
use crate::telemetry::Logging;
use crate::{PoolOptions, custody};
#[cfg(not(feature = "http"))]
use serde::de::IgnoredAny as HttpKeys;
use snakepit_core::pool::PoolSettings;
use snakepit_settings::{SettingsTable, read_table, settings};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Root {
    #[serde(default, deserialize_with = "in_order")]
    pub(super) pool: Vec<(String, PoolTable)>,
    #[serde(default)]
    pub(super) custody: SettingsTable<Foreign<custody::CustodyOptions>>,
    #[serde(default)]
    pub(super) log: Logging,
    #[cfg(all(feature = "loops", feature = "sqlite"))]
    #[serde(default, rename = "loop", deserialize_with = "in_order")]
    pub(super) loops: Vec<(String, super::loops::LoopTable)>,
    #[cfg(all(feature = "loops", feature = "sqlite"))]
    #[serde(default)]
    pub(super) service: SettingsTable<super::service::ServiceConfig>,
}

/// Reads the tables of a table in the order of the file: by default, calls go to the first pool.
fn in_order<'de, D, T>(deserializer: D) -> Result<Vec<(String, T)>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct InOrder<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for InOrder<T> {
        type Value = Vec<(String, T)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("tables with names, such as [pool.NAME]")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut tables: A) -> Result<Self::Value, A::Error> {
            let mut found = Vec::new();
            while let Some(entry) = tables.next_entry()? {
                found.push(entry);
            }
            Ok(found)
        }
    }
    deserializer.deserialize_map(InOrder(PhantomData))
}

settings! {
    /// The keys of `[pool.NAME]` that describe its workers.
    #[derive(Clone)]
    pub(super) struct WorkerKeys {
        /// A worker in Python: a file, or a module. Example: `worker = "worker.py"`.
        worker: Option<PathBuf> = None,
        /// A worker in any language: the program and its arguments. Example: `command = ["./worker", "--fast"]`.
        command: Option<Vec<String>> = None,
        /// The way to call the worker. `worker` implies `"python"`, and `command` implies `"socket"` (spec/wire.md).
        /// Either of them can be combined with `"stdio"` (lines of JSON on the standard streams, spec/stdio.md),
        /// `"http"` (routes on a port that the worker announces) or `"grpc"` (spec/snakepit.proto). Example:
        /// `adapter = "python"`.
        adapter: Option<AdapterName> = None,
        /// Settings of the adapter `"http"`. `prefix` precedes all routes. `method` applies to commands that have no
        /// route of their own. `ready` is how a worker shows that it is ready: `"line"` (it prints its ready line),
        /// `"port"` (it accepts a connection) or `{ probe = "/healthz" }` (it answers with 2xx). `routes` maps commands
        /// to routes, see docs/adapters.md. With `"port"` and `"probe"`, {socket} or {port} in `command` and `env`
        /// stands for the address on which the worker should listen; `port` is the port of a worker that chooses its
        /// own. Example: `http = { prefix = "/api", method = "POST", ready = "line" }`.
        http: Option<HttpKeys> = None,
        /// Settings of the adapter `"grpc"`. `over` is `"unix"` for a Unix socket, or `"tcp"` for a port of the
        /// loopback interface, for servers without Unix sockets. Example: `grpc = { over = "unix" }`.
        grpc: Option<GrpcKeys> = None,
        /// The Python interpreter: a version (`"3.12"`), a path, a name in PATH, or the directory of a virtual
        /// environment. Unset: that of `$VIRTUAL_ENV`, otherwise python3. Example: `python = "3.12"`.
        python: Option<String> = None,
        /// The same as `python`, but only for paths and names. Example: `interpreter = ".venv/bin/python"`.
        interpreter: Option<PathBuf> = None,
        /// The packages that are installed for a worker, in an environment that is built once and kept: a list, or the
        /// path of a file. See docs/environments.md. Example: `requirements = ["numpy>=2"]`.
        requirements: Option<RequirementKeys> = None,
        /// A project whose dependencies are installed: the path of its pyproject.toml, uv.lock, pylock.toml or
        /// requirements file. Example: `project = "pyproject.toml"`.
        project: Option<PathBuf> = None,
        /// How packages are installed. Example: `install = { tool = "auto", args = [], timeout = "30m" }`.
        install: InstallKeys = InstallKeys::default(),
        /// The working directory of a worker. Unset: the directory of this file. Example: `current_dir = "."`.
        current_dir: Option<PathBuf> = None,
        /// Variables that are added to a worker's environment. Example: `env = { TOKENIZERS_PARALLELISM = "false" }`.
        env: BTreeMap<String, String> = BTreeMap::new(),
        /// Calls that each worker must answer before it serves. Example:
        /// `warm_up = [{ command = "load", args = { model = "small" } }]`.
        warm_up: Vec<WarmUpKeys> = Vec::new(),
    }
    without setters
}

/// A call that a worker must answer before it serves.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WarmUpKeys {
    command: String,
    #[serde(default)]
    args: toml::Table,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum AdapterName {
    Python,
    Socket,
    Stdio,
    Http,
    Grpc,
}

/// The table `[pool.NAME]`.
#[derive(Default)]
pub(super) struct PoolTable {
    keys: WorkerKeys,
    settings: PoolSettings,
    recycling: Recycling,
    sizing: Sizing,
    /// The keys that are present in the file.
    given: Vec<&'static str>,
}

settings! {
    parts of PoolTable {
        keys: WorkerKeys,
        settings: PoolSettings,
        sizing: Sizing,
        recycling: Recycling,
    }
}

impl<'de> Deserialize<'de> for PoolTable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (table, given) = read_table(deserializer, Self::default())?;
        let table = Self { given, ..table };
        table.check().map_err(de::Error::custom)?;
        Ok(table)
    }
}

enum WorkerLaunch {
    /// Started by our SDK, or by an adapter that does not need it.
    Python(PathBuf),
    Command(Vec<String>),
}

impl PoolTable {
    fn has(&self, key: &str) -> bool {
        self.given.contains(&key)
    }

    /// Checks that the keys fit together. The error says what to do.
    fn check(&self) -> Result<(), &'static str> {
        self.keys.check(self.has("install"))?;
        if self.settings.gpus.is_some() && !self.settings.devices.is_empty() {
            return Err("it has both `gpus` and `devices`: keep one");
        }
        let Sizing { min_workers: fewest, max_workers: most, .. } = self.sizing;
        if !self.has("max_workers") {
            if self.has("min_workers") {
                return Err("it has `min_workers` without `max_workers`: add `max_workers`");
            }
            if self.has("grow_after") || self.has("grow_factor") {
                return Err(
                    "`grow_after` and `grow_factor` are for a pool whose size follows the load: add `max_workers`",
                );
            }
        } else if self.has("workers") {
            return Err(
                "it has both `workers` and `max_workers`: keep `workers` for a fixed number, or `min_workers` and \
                 `max_workers` for one that follows the load",
            );
        } else if most == 0 {
            return Err("its `max_workers` is 0: use 1 or more");
        } else if self.has("min_workers") && fewest > most {
            return Err("its `min_workers` is larger than its `max_workers`: exchange them");
        }
        match self.settings.adaptive_concurrency {
            Some(_) if self.has("concurrency") => {
                Err("it has both `concurrency` and `adaptive_concurrency`: keep one")
            }
            Some((fewest, most)) if fewest == 0 || fewest > most => Err(
                "its `adaptive_concurrency` must be [fewest, most], with 1 <= fewest <= most, such as [1, 8]",
            ),
            _ => Ok(()),
        }
    }

    pub(super) fn into_pool(self, name: &str, dir: &Path) -> PoolOptions {
        let pool = self.keys.pool(dir).name(name);
        let follows_load = self.has("max_workers");
        let workers_are_set = self.has("workers");
        let mut settings = self.settings;
        (settings.workers_are_set, settings.recycling) = (workers_are_set, self.recycling);
        let mut pool = pool.settings(settings);
        if follows_load {
            let mut sizing = self.sizing;
            sizing.min_workers = sizing.min_workers.min(sizing.max_workers);
            // In such a pool, idle workers are ended, not replaced.
            sizing.idle_ttl = pool.recycling.idle_ttl.take().unwrap_or(sizing.idle_ttl);
            pool.sizing = Some(sizing);
        }
        if let Some((fewest, most)) = pool.adaptive_concurrency {
            pool = pool.adaptive_concurrency(fewest..=most);
        }
        self.keys.warm_up.into_iter().fold(pool, |pool, it| pool.warm_up(it.command, it.args))
    }
}

impl WorkerKeys {
    fn check(&self, mentions_install: bool) -> Result<(), &'static str> {
        match (&self.worker, &self.command, self.adapter) {
            (Some(_), Some(_), _) => {
                return Err("it has both `worker` (Python) and `command` (any language): keep one");
            }
            (None, None, _) => {
                return Err(
                    "it does not say what its workers are: add worker = \"worker.py\", or command = [\"program\"]",
                );
            }
            (Some(_), None, Some(AdapterName::Socket)) => {
                return Err("the adapter \"socket\" starts a `command`, not a `worker`: leave `adapter` out");
            }
            (None, Some(_), Some(AdapterName::Python)) => {
                return Err("the adapter \"python\" starts a `worker`, not a `command`: leave `adapter` out");
            }
            (None, Some(argv), _) if argv.first().is_none_or(String::is_empty) => {
                return Err("its `command` is empty: write the program and its arguments, each as a string");
            }
            (Some(worker), None, _) if worker.as_os_str().is_empty() => {
                return Err("its `worker` is empty: name a file (worker.py) or a module");
            }
            (None, Some(_), _) if self.interpreter.is_some() => {
                return Err(
                    "`interpreter` is for a `worker` in Python: put the interpreter in front of `command`",
                );
            }
            (Some(_), None, _) | (None, Some(_), _) => {}
        }
        self.check_adapter()?;
        self.check_python(mentions_install)
    }

    /// Returns a pool of such workers, with the settings that every pool has.
    fn pool(&self, dir: &Path) -> PoolOptions {
        let current_dir = self.current_dir.as_ref().map_or_else(|| dir.to_owned(), |path| dir.join(path));
        let launch = match (&self.worker, &self.command) {
            (Some(worker), _) => WorkerLaunch::Python(worker.clone()),
            (None, command) => WorkerLaunch::Command(command.clone().unwrap_or_default()),
        };
        match (self.adapter, launch) {
            (Some(adapter), launch) if adapter.announces() => {
                self.announcing_pool(self.program(launch, dir).current_dir(current_dir))
            }
            (_, WorkerLaunch::Python(worker)) => {
                let worker = if is_file(&worker) { dir.join(worker) } else { worker };
                let python =
                    PythonWorker::new(worker).current_dir(current_dir).environment(self.environment(dir));
                self.python_pool(
                    self.env.iter().fold(python, |python, (name, value)| python.env(name, value)),
                )
            }
            (_, launch @ WorkerLaunch::Command(_)) => {
                self.command_pool(self.program(launch, dir).current_dir(current_dir))
            }
        }
    }

    /// Returns the program to start, without our SDK.
    fn program(&self, launch: WorkerLaunch, dir: &Path) -> Program {
        let has_python = matches!(launch, WorkerLaunch::Python(_)) || self.installs();
        let argv: Vec<OsString> = match launch {
            WorkerLaunch::Command(mut argv) => {
                let program = from(dir, Path::new(&argv.remove(0)));
                std::iter::once(program.into()).chain(argv.into_iter().map(Into::into)).collect()
            }
            WorkerLaunch::Python(worker) => {
                if is_file(&worker) {
                    vec!["python".into(), dir.join(worker).into()]
                } else {
                    vec!["python".into(), "-m".into(), worker.into()]
                }
            }
        };
        let program =
            self.env.iter().fold(Program::new(argv), |program, (name, value)| program.env(name, value));
        if has_python { program.environment(self.environment(dir)) } else { program }
    }

    /// Checks that the build has the adapter, and that the keys of an adapter come with that adapter.
    fn check_adapter(&self) -> Result<(), &'static str> {
        match self.adapter {
            Some(AdapterName::Stdio) if !cfg!(feature = "stdio") => {
                Err("the adapter \"stdio\" is not in this build: turn on the feature `stdio` of the library")
            }
            Some(AdapterName::Http) if !cfg!(feature = "http") => {
                Err("the adapter \"http\" is not in this build: turn on the feature `http` of the library")
            }
            Some(AdapterName::Grpc) if !cfg!(feature = "grpc") => {
                Err("the adapter \"grpc\" is not in this build: turn on the feature `grpc` of the library")
            }
            adapter if adapter != Some(AdapterName::Http) && self.http.is_some() => {
                Err("`http` is for the adapter \"http\": add adapter = \"http\"")
            }
            adapter if adapter != Some(AdapterName::Grpc) && self.grpc.is_some() => {
                Err("`grpc` is for the adapter \"grpc\": add adapter = \"grpc\"")
            }
            _ => Ok(()),
        }
    }

    /// Returns a pool of workers with our SDK.
    fn python_pool(&self, worker: PythonWorker) -> PoolOptions {
        match self.adapter {
            #[cfg(feature = "grpc")]
            Some(AdapterName::Grpc) => crate::grpc(self.over(GrpcWorker::python(worker))),
            _ => crate::python(worker),
        }
    }

    /// Returns a pool of programs that implement the protocol themselves.
    fn command_pool(&self, program: Program) -> PoolOptions {
        match self.adapter {
            #[cfg(feature = "grpc")]
            Some(AdapterName::Grpc) => crate::grpc(self.over(GrpcWorker::command(program))),
            _ => crate::command(program),
        }
    }

    #[cfg(feature = "grpc")]
    fn over(&self, worker: GrpcWorker) -> GrpcWorker {
        match &self.grpc {
            Some(GrpcKeys { over: GrpcOver::Tcp }) => worker.tcp(),
            Some(GrpcKeys { over: GrpcOver::Unix }) | None => worker,
        }
    }

    /// Returns a pool of workers that print a ready line. Their adapter was checked before.
    fn announcing_pool(&self, program: Program) -> PoolOptions {
        match self.adapter {
            #[cfg(feature = "http")]
            Some(AdapterName::Http) => crate::http(self.http.clone().unwrap_or_default().worker(program)),
            #[cfg(feature = "stdio")]
            Some(AdapterName::Stdio) => crate::stdio(program),
            _ => crate::command(program),
        }
    }
}

/// The keys of `grpc = { … }`.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(
    not(feature = "grpc"),
    expect(dead_code, reason = "they are checked, in a build without the adapter, too")
)]
pub(super) struct GrpcKeys {
    over: GrpcOver,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum GrpcOver {
    Unix,
    Tcp,
}

/// Resolves the path of a program: relative to the file, or a bare name to be found in `PATH`.
pub(super) fn from(dir: &Path, program: &Path) -> PathBuf {
    if program.components().count() > 1 { dir.join(program) } else { program.to_owned() }
}

impl AdapterName {
    /// Reports whether the workers print a ready line of their own, so that our SDK does not start them.
    fn announces(self) -> bool {
        match self {
            Self::Stdio | Self::Http => true,
            // Workers of gRPC announce themselves, too, but our SDK can do it for them.
            Self::Python | Self::Socket | Self::Grpc => false,
        }
    }
}
