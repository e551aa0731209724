//! The file's tables, key by key, and what they become.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

use super::environment::{GpuKeys, InstallKeys, RequirementKeys, ThreadKeys};
#[cfg(feature = "http")]
use super::http::HttpKeys;
use super::supervision::{
    BreakerKeys, QuarantineKeys, RestartKeys, RetryKeys, StuckKeys, TaintKeys, WarmUpKeys, set,
};
use super::units::{Size, Time};
#[cfg(feature = "grpc")]
use crate::GrpcWorker;
use crate::adapter::Program;
use crate::adapter::python::is_file;
use crate::{Affinity, CancelGrace, LogLevel, Logging, LostSessions, Pool, PythonWorker, custody};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Root {
    #[serde(default, deserialize_with = "in_order")]
    pub(super) pool: Vec<(String, PoolTable)>,
    #[serde(default)]
    pub(super) custody: CustodyTable,
    #[serde(default)]
    pub(super) log: LogTable,
    #[cfg(all(feature = "loops", feature = "sqlite"))]
    #[serde(default, rename = "loop", deserialize_with = "in_order")]
    pub(super) loops: Vec<(String, super::loops::LoopTable)>,
    #[cfg(all(feature = "loops", feature = "sqlite"))]
    #[serde(default)]
    pub(super) service: super::service::ServiceTable,
}

/// The tables of a table, in the order of the file: the first pool is the one that calls go to by default.
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

/// The keys of `[pool.NAME]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PoolKeys {
    worker: Option<PathBuf>,
    command: Option<Vec<String>>,
    adapter: Option<AdapterName>,
    http: Option<HttpKeys>,
    grpc: Option<GrpcKeys>,
    pub(super) interpreter: Option<PathBuf>,
    pub(super) python: Option<String>,
    pub(super) requirements: Option<RequirementKeys>,
    pub(super) project: Option<PathBuf>,
    pub(super) install: Option<InstallKeys>,
    pub(super) gpus: Option<GpuKeys>,
    pub(super) threads: Option<ThreadKeys>,
    current_dir: Option<PathBuf>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    workers: Option<NonZeroUsize>,
    concurrency: Option<NonZeroUsize>,
    start_batch: Option<NonZeroUsize>,
    worker_start_timeout: Option<Time>,
    queue_limit: Option<usize>,
    queue_timeout: Option<Time>,
    call_timeout: Option<Time>,
    stream_timeout: Option<Time>,
    affinity: Option<Affinity>,
    lost_sessions: Option<LostSessions>,
    session_ttl: Option<Time>,
    max_sessions: Option<usize>,
    #[serde(default)]
    cancel_grace: CancelKeys,
    max_frame: Option<Size>,
    pub(super) min_workers: Option<usize>,
    pub(super) max_workers: Option<usize>,
    pub(super) grow_after: Option<Time>,
    pub(super) adaptive_concurrency: Option<(usize, usize)>,
    pub(super) max_requests: Option<u64>,
    pub(super) ttl: Option<Time>,
    pub(super) idle_ttl: Option<Time>,
    pub(super) max_rss: Option<Size>,
    pub(super) recycle_jitter: Option<f64>,
    pub(super) replace_at_once: Option<NonZeroUsize>,
    pub(super) lazy: Option<bool>,
    pub(super) debug: Option<bool>,
    #[serde(default)]
    pub(super) warm_up: Vec<WarmUpKeys>,
    pub(super) devices: Option<Vec<String>>,
    pub(super) restarts: Option<RestartKeys>,
    pub(super) retry: Option<RetryKeys>,
    pub(super) quarantine: Option<QuarantineKeys>,
    pub(super) breaker: Option<BreakerKeys>,
    pub(super) taint: Option<TaintKeys>,
    pub(super) stuck: Option<StuckKeys>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AdapterName {
    Python,
    Socket,
    Stdio,
    Http,
    Grpc,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct CancelKeys {
    ask: Option<Time>,
    raise: Option<Time>,
    terminate: Option<Time>,
}

/// A pool's table whose keys fit together.
#[derive(Deserialize)]
#[serde(try_from = "PoolKeys")]
pub(super) struct PoolTable {
    launch: Launch,
    keys: PoolKeys,
}

enum Launch {
    /// With our SDK, or without it by another adapter.
    Python(PathBuf),
    Command(Vec<String>),
}

impl TryFrom<PoolKeys> for PoolTable {
    type Error = &'static str;

    fn try_from(mut keys: PoolKeys) -> Result<Self, Self::Error> {
        let launch = match (keys.worker.take(), keys.command.take(), keys.adapter) {
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
            (None, Some(_), _) if keys.interpreter.is_some() => {
                return Err(
                    "`interpreter` is for a `worker` in Python: put the interpreter in front of `command`",
                );
            }
            (Some(worker), None, _) => Launch::Python(worker),
            (None, Some(argv), _) => Launch::Command(argv),
        };
        check_adapter(&keys)?;
        keys.check_python(matches!(launch, Launch::Command(_)))?;
        match (keys.workers, keys.min_workers, keys.max_workers) {
            (Some(_), _, Some(_)) => {
                return Err(
                    "it has both `workers` and `max_workers`: keep `workers` for a fixed number, or \
                            `min_workers` and `max_workers` for one that follows the load",
                );
            }
            (_, Some(_), None) => return Err("`min_workers` needs a `max_workers`"),
            (_, Some(fewest), Some(most)) if fewest > most => {
                return Err("its `min_workers` is larger than its `max_workers`");
            }
            (_, _, Some(0)) => return Err("its `max_workers` is 0: at least one worker must be allowed"),
            (_, _, None) if keys.grow_after.is_some() => {
                return Err("`grow_after` is for a pool whose size follows the load: add `max_workers`");
            }
            _ => {}
        }
        match keys.adaptive_concurrency {
            Some(_) if keys.concurrency.is_some() => {
                return Err("it has both `concurrency` and `adaptive_concurrency`: keep one");
            }
            Some((fewest, most)) if fewest == 0 || fewest > most => {
                return Err(
                    "`adaptive_concurrency` is [fewest, most], with at least 1 and no fewer than fewest",
                );
            }
            _ => {}
        }
        Ok(Self { launch, keys })
    }
}

impl PoolTable {
    pub(super) fn into_pool(self, name: &str, dir: &Path) -> Pool {
        let Self { launch, mut keys } = self;
        let current_dir = keys.current_dir.as_ref().map_or_else(|| dir.to_owned(), |path| dir.join(path));
        let pool = match (keys.adapter, launch) {
            (Some(adapter), launch) if adapter.announces() => {
                let program = launch.program(&mut keys, dir).current_dir(current_dir);
                keys.announcing_pool(program)
            }
            (_, Launch::Python(worker)) => {
                let worker = if is_file(&worker) { dir.join(worker) } else { worker };
                let mut python = PythonWorker::new(worker).current_dir(current_dir);
                python = python.environment(keys.environment(dir));
                for (key, value) in &keys.env {
                    python = python.env(key, value);
                }
                keys.python_pool(python)
            }
            (_, launch @ Launch::Command(_)) => {
                let program = launch.program(&mut keys, dir).current_dir(current_dir);
                keys.command_pool(program)
            }
        };
        let pool = keys.equip(pool.name(name));
        keys.apply(pool)
    }
}

impl Launch {
    /// What is started, without our SDK.
    fn program(self, keys: &mut PoolKeys, dir: &Path) -> Program {
        let has_python = matches!(self, Self::Python(_)) || keys.installs();
        let argv: Vec<OsString> = match self {
            Self::Command(mut argv) => {
                let program = from(dir, Path::new(&argv.remove(0)));
                std::iter::once(program.into()).chain(argv.into_iter().map(Into::into)).collect()
            }
            Self::Python(worker) => {
                if is_file(&worker) {
                    vec!["python".into(), dir.join(worker).into()]
                } else {
                    vec!["python".into(), "-m".into(), worker.into()]
                }
            }
        };
        let program =
            keys.env.iter().fold(Program::new(argv), |program, (key, value)| program.env(key, value));
        if has_python { program.environment(keys.environment(dir)) } else { program }
    }
}

impl AdapterName {
    /// Whether its workers announce themselves, so that our SDK does not start them.
    fn announces(self) -> bool {
        match self {
            Self::Stdio | Self::Http => true,
            // Those of gRPC announce themselves, too, but our SDK can do it.
            Self::Python | Self::Socket | Self::Grpc => false,
        }
    }
}

/// Whether the adapter is in this build, and has the keys that are said.
fn check_adapter(keys: &PoolKeys) -> Result<(), &'static str> {
    match keys.adapter {
        Some(AdapterName::Stdio) if !cfg!(feature = "stdio") => {
            Err("the adapter \"stdio\" is not in this build: turn on the feature `stdio` of the library")
        }
        Some(AdapterName::Http) if !cfg!(feature = "http") => {
            Err("the adapter \"http\" is not in this build: turn on the feature `http` of the library")
        }
        Some(AdapterName::Grpc) if !cfg!(feature = "grpc") => {
            Err("the adapter \"grpc\" is not in this build: turn on the feature `grpc` of the library")
        }
        adapter if adapter != Some(AdapterName::Http) && keys.http.is_some() => {
            Err("`http` is for the adapter \"http\": add adapter = \"http\"")
        }
        adapter if adapter != Some(AdapterName::Grpc) && keys.grpc.is_some() => {
            Err("`grpc` is for the adapter \"grpc\": add adapter = \"grpc\"")
        }
        _ => Ok(()),
    }
}

impl PoolKeys {
    /// A pool of workers with our SDK.
    fn python_pool(&self, worker: PythonWorker) -> Pool {
        match self.adapter {
            #[cfg(feature = "grpc")]
            Some(AdapterName::Grpc) => Pool::grpc(self.over(GrpcWorker::python(worker))),
            _ => Pool::python(worker),
        }
    }

    /// A pool of programs that bring what they need.
    fn command_pool(&self, program: Program) -> Pool {
        match self.adapter {
            #[cfg(feature = "grpc")]
            Some(AdapterName::Grpc) => Pool::grpc(self.over(GrpcWorker::command(program))),
            _ => Pool::command(program),
        }
    }

    #[cfg(feature = "grpc")]
    fn over(&self, worker: GrpcWorker) -> GrpcWorker {
        match &self.grpc {
            Some(GrpcKeys { over: GrpcOver::Tcp }) => worker.tcp(),
            Some(GrpcKeys { over: GrpcOver::Unix }) | None => worker,
        }
    }

    /// A pool of workers that announce themselves; its adapter was checked before.
    fn announcing_pool(&self, program: Program) -> Pool {
        match self.adapter {
            #[cfg(feature = "http")]
            Some(AdapterName::Http) => Pool::http(self.http.clone().unwrap_or_default().worker(program)),
            #[cfg(feature = "stdio")]
            Some(AdapterName::Stdio) => Pool::stdio(program),
            _ => Pool::command(program),
        }
    }
}

/// The keys of `grpc = { … }`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(
    not(feature = "grpc"),
    expect(dead_code, reason = "they are checked, in a build without the adapter, too")
)]
struct GrpcKeys {
    over: GrpcOver,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum GrpcOver {
    Unix,
    Tcp,
}

/// Stands for the keys of a build that has the adapter.
#[cfg(not(feature = "http"))]
type HttpKeys = serde::de::IgnoredAny;

/// A program: a path is relative to the file, a bare name is looked for in `PATH`.
pub(super) fn from(dir: &Path, program: &Path) -> PathBuf {
    if program.components().count() > 1 { dir.join(program) } else { program.to_owned() }
}

impl PoolKeys {
    /// Sets what is said; what is not keeps the pool's own default.
    fn apply(self, pool: Pool) -> Pool {
        let usual = CancelGrace::default();
        let time = |time: Option<Time>, usual| time.map_or(usual, |Time(time)| time);
        let grace = CancelGrace {
            ask: time(self.cancel_grace.ask, usual.ask),
            raise: time(self.cancel_grace.raise, usual.raise),
            terminate: time(self.cancel_grace.terminate, usual.terminate),
        };
        let pool = pool.cancel_grace(grace);
        let pool = set(pool, self.workers.map(NonZeroUsize::get), Pool::workers);
        let pool = set(pool, self.concurrency.map(NonZeroUsize::get), Pool::concurrency);
        let pool = set(pool, self.start_batch.map(NonZeroUsize::get), Pool::start_batch);
        let pool = set(pool, self.worker_start_timeout.map(|it| it.0), Pool::worker_start_timeout);
        let pool = set(pool, self.queue_limit, Pool::queue_limit);
        let pool = set(pool, self.queue_timeout.map(|it| it.0), Pool::queue_timeout);
        let pool = set(pool, self.call_timeout.map(|it| it.0), Pool::call_timeout);
        let pool = set(pool, self.stream_timeout.map(|it| it.0), Pool::stream_timeout);
        let pool = set(pool, self.affinity, Pool::affinity);
        let pool = set(pool, self.lost_sessions, Pool::lost_sessions);
        let pool = set(pool, self.session_ttl.map(|it| it.0), Pool::session_ttl);
        let pool = set(pool, self.max_sessions, Pool::max_sessions);
        let pool = set(pool, self.max_frame.map(|it| it.0), Pool::max_frame);
        self.supervise(pool)
    }
}

/// The keys of `[log]`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LogTable {
    library_mode: Option<bool>,
    log_level: Option<LogLevel>,
    grpc_log_level: Option<LogLevel>,
    log_python_output: Option<bool>,
}

impl LogTable {
    pub(super) fn into_logging(self) -> Logging {
        let logging = set(Logging::default(), self.library_mode, Logging::library_mode);
        let logging = set(logging, self.log_level, Logging::log_level);
        let logging = set(logging, self.grpc_log_level, Logging::grpc_log_level);
        set(logging, self.log_python_output, Logging::log_python_output)
    }
}

/// The keys of `[custody]`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CustodyTable {
    containment: Option<Containment>,
    state_dir: Option<PathBuf>,
    cleanup_on_stop: Option<bool>,
    cleanup_on_stop_timeout_ms: Option<u64>,
    process_group_kill: Option<bool>,
    cleanup_max_retries: Option<u32>,
    cleanup_retry_interval_ms: Option<u64>,
    cleanup_poll_interval_ms: Option<u64>,
    ledger_sync: Option<LedgerSync>,
    reap_interval: Option<Time>,
}

/// Custody has no serde; it needs none.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case", remote = "custody::Containment")]
enum ContainmentName {
    Auto,
    Namespace,
    Shim,
    Group,
}

#[derive(Deserialize)]
struct Containment(#[serde(with = "ContainmentName")] custody::Containment);

#[derive(Deserialize)]
#[serde(rename_all = "snake_case", remote = "custody::LedgerSync")]
enum LedgerSyncName {
    Off,
    Data,
}

#[derive(Deserialize)]
struct LedgerSync(#[serde(with = "LedgerSyncName")] custody::LedgerSync);

impl CustodyTable {
    pub(super) fn into_config(self, dir: &Path) -> custody::Config {
        let usual = custody::Config::default();
        custody::Config {
            containment: self.containment.map_or(usual.containment, |it| it.0),
            state_dir: self.state_dir.map(|path| dir.join(path)).or(usual.state_dir),
            cleanup_on_stop: self.cleanup_on_stop.unwrap_or(usual.cleanup_on_stop),
            cleanup_on_stop_timeout_ms: self
                .cleanup_on_stop_timeout_ms
                .unwrap_or(usual.cleanup_on_stop_timeout_ms),
            process_group_kill: self.process_group_kill.unwrap_or(usual.process_group_kill),
            cleanup_max_retries: self.cleanup_max_retries.unwrap_or(usual.cleanup_max_retries),
            cleanup_retry_interval_ms: self
                .cleanup_retry_interval_ms
                .unwrap_or(usual.cleanup_retry_interval_ms),
            cleanup_poll_interval_ms: self.cleanup_poll_interval_ms.unwrap_or(usual.cleanup_poll_interval_ms),
            ledger_sync: self.ledger_sync.map_or(usual.ledger_sync, |it| it.0),
            reap_interval: self.reap_interval.map_or(usual.reap_interval, |it| it.0),
            session: usual.session,
        }
    }
}
