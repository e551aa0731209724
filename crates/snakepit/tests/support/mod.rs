//! An engine with a state directory of its own, which must be empty of runs when the test ends.
#![allow(dead_code, clippy::allow_attributes, reason = "every test file uses its own part of this one")]

#[path = "../../../proving/src/unproven.rs"]
#[expect(
    unreachable_pub,
    clippy::disallowed_methods,
    reason = "it is the proving crate's, and asks the system's own tool"
)]
mod unproven;

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use snakepit::adapter::PythonWorker;
use snakepit::custody::{Config, Containment};
use snakepit::{Builder, CallError, PoolOptions, Snakepit, Value, args};
use tempfile::TempDir;
pub(crate) use unproven::unproven;

/// How long something may take that takes milliseconds on a machine with nothing else to do.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// Those of the tiers that this machine has; who is left out is told.
pub(crate) fn possible<const N: usize>(tiers: [Containment; N]) -> impl Iterator<Item = Containment> {
    tiers.into_iter().filter(|tier| *tier != Containment::Namespace || has_namespaces())
}

/// Whether there are PID namespaces; it is told if not.
pub(crate) fn has_namespaces() -> bool {
    let refusal = unproven::namespace_refusal(None);
    refusal.as_deref().inspect(|why| unproven(why)).is_none()
}

/// A worker of the tests.
pub(crate) fn worker(file: &str) -> PoolOptions {
    snakepit::python(python(file))
}

/// The same, to be changed before it becomes a pool.
///
/// With `SNAKEPIT_TEST_PYTHON`, an interpreter that has msgspec, its values are coded by msgspec or it does not start.
pub(crate) fn python(file: &str) -> PythonWorker {
    let worker = PythonWorker::new(workers().join(file));
    match python_with_msgspec() {
        Some(python) => worker.interpreter(python).env("SNAKEPIT_CODEC", "msgspec"),
        None => worker,
    }
}

/// The interpreter that the tests were told to use.
pub(crate) fn python_with_msgspec() -> Option<PathBuf> {
    std::env::var_os("SNAKEPIT_TEST_PYTHON").filter(|python| !python.is_empty()).map(PathBuf::from)
}

/// A worker without the SDK, which misbehaves in the named way.
pub(crate) fn raw(mode: &str) -> PoolOptions {
    raw_with(mode, Path::new(""))
}

/// The same, with a file that it writes to.
pub(crate) fn raw_with(mode: &str, path: &Path) -> PoolOptions {
    let file = workers().join("raw.py").into_os_string();
    snakepit::command(["python3".into(), file, mode.into(), path.into()]).name("raw").workers(1)
}

fn workers() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/workers")
}

/// How many rounds a test of a race makes: all if `SNAKEPIT_FULL` is set, a twentieth if `SNAKEPIT_QUICK` is, else a quarter.
pub(crate) fn rounds(all: usize) -> usize {
    match () {
        () if is_full() => all,
        () if is_set("SNAKEPIT_QUICK") => all.div_ceil(20),
        () => all.div_ceil(4),
    }
}

/// Whether a test takes all the time that its promise names.
pub(crate) fn is_full() -> bool {
    is_set("SNAKEPIT_FULL")
}

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0")
}

pub(crate) struct Pit {
    pit: Snakepit,
    home: TempDir,
}

impl Pit {
    pub(crate) async fn start(pool: PoolOptions) -> Self {
        Self::build(Snakepit::builder().pool(pool)).await
    }

    pub(crate) async fn build(builder: Builder) -> Self {
        Self::build_with(builder, Config::default()).await
    }

    pub(crate) async fn build_with(builder: Builder, custody: Config) -> Self {
        let home = tempfile::tempdir().expect("a directory");
        let custody = Config { state_dir: Some(home.path().to_owned()), ..custody };
        let pit = builder.custody(custody).start().await.unwrap_or_else(|error| panic!("{}", chain(&error)));
        Self { pit, home }
    }

    /// A file of its own for what workers write down.
    pub(crate) fn file(&self, name: &str) -> String {
        let files = self.home.path().join("files");
        std::fs::create_dir_all(&files).expect("a directory for files");
        files.join(name).to_string_lossy().into_owned()
    }

    /// Its state directory.
    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// Stops it, and proves that nothing is left.
    pub(crate) async fn end(self) {
        self.pit.stop().await;
        self.prove_nothing_is_left();
    }

    /// As [`Pit::end`], without time for what is under way.
    pub(crate) async fn end_now(self) {
        self.pit.stop_within(Duration::ZERO).await;
        self.prove_nothing_is_left();
    }

    pub(crate) fn prove_nothing_is_left(&self) {
        let left = runs_in(self.home.path());
        assert!(left.is_empty(), "runs are left: {left:?}");
    }

    /// Drops the engine without stopping it, and keeps the directory.
    pub(crate) fn abandon(self) -> TempDir {
        self.home
    }
}

/// The runs that are recorded in a state directory.
pub(crate) fn runs_in(home: &Path) -> Vec<String> {
    let Ok(runs) = std::fs::read_dir(home.join("runs")) else { return Vec::new() };
    let names = runs.map(|run| run.expect("a run").file_name().to_string_lossy().into_owned());
    names.filter(|name| !name.starts_with('.')).collect()
}

pub(crate) fn config(home: &TempDir) -> Config {
    Config { state_dir: Some(home.path().to_owned()), ..Config::default() }
}

impl Deref for Pit {
    type Target = Snakepit;

    fn deref(&self) -> &Snakepit {
        &self.pit
    }
}

/// An error with its sources.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

/// Until something holds that no event tells of: the other side is another process, or a counter.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < deadline, "in vain waited until {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Within the time that everything must be done in.
pub(crate) async fn soon<F: IntoFuture>(what: &str, work: F) -> F::Output {
    let done = tokio::time::timeout(SOON, work.into_future()).await;
    done.unwrap_or_else(|_| panic!("{what} takes longer than {SOON:?}"))
}

/// Whether a process with this number runs; a zombie does not.
pub(crate) fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
    state.is_some_and(|state| !"ZX".contains(state))
}

/// The lines of a file that workers write.
pub(crate) fn lines(path: &str) -> Vec<String> {
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Calls that are known to be short are sent ahead: teaches a pool of `hostile.py` that its marks are.
///
/// A pool believes one slow call at once and the fast ones after it slowly, so it is taught until it believes: what it thinks
/// is reckoned here from times that are longer than those that it sees. Not for ever: some machines are too slow for it.
pub(crate) async fn learn_that_they_are_short(pit: &Snakepit, path: &str) {
    let believed =
        |known: Duration, seen: Duration| known.saturating_sub((known.saturating_sub(seen)) / 8).max(seen);
    let (mut mark, mut nap) = (Duration::ZERO, Duration::ZERO);
    for n in 0..300 {
        let args = args! { path: path, key: format!("warm-{n}") };
        let began = Instant::now();
        let _: Value = soon("a call", pit.call("mark", args)).await.expect("marked");
        mark = believed(mark, began.elapsed());
        let args = args! { path: path, key: format!("nap-{n}"), seconds: 0.0 };
        let began = Instant::now();
        let _: Value = soon("a nap", pit.call("mark_and_sleep", args)).await.expect("slept");
        nap = believed(nap, began.elapsed());
        if n >= 40 && mark + nap < Duration::from_micros(400) {
            return;
        }
    }
}

/// A time that differs from round to round, in microseconds.
pub(crate) fn jitter(round: usize, most: u64) -> Duration {
    Duration::from_micros((round as u64).wrapping_mul(7919) % most)
}

/// Chance that can be had again: the same seed, the same numbers (splitmix64).
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((number ^ (number >> 31)) % end as u64) as usize
    }
}

/// A value of the environment that is a number, such as a seed or a length.
pub(crate) fn number_from_env(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok().filter(|value| !value.is_empty())?;
    Some(value.parse().unwrap_or_else(|error| panic!("{name}={value}: {error}")))
}

/// The workers of a pool that serve, by their processes, the lowest slot first.
pub(crate) fn pids(pool: &snakepit::Pool) -> Vec<u32> {
    let mut workers = pool.workers();
    workers.sort_by_key(|worker| worker.slot);
    workers.iter().filter_map(|worker| worker.pid).map(|pid| pid.as_raw() as u32).collect()
}

/// Why a pool has fewer workers than it should, if it has.
pub(crate) fn trouble(pool: &snakepit::Pool) -> Option<String> {
    pool.health().borrow().reason().map(str::to_owned)
}

/// The value below which so many percent of the sorted ones are.
pub(crate) fn percentile<T: Copy>(sorted: &[T], percent: usize) -> T {
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

/// The words of an error whose worker died.
pub(crate) fn fault_of(error: &CallError) -> String {
    match error.autopsy() {
        Some(autopsy) => autopsy.fault.clone().unwrap_or_else(|| format!("no fault, but {autopsy}")),
        None => panic!("not a death: {error}"),
    }
}

/// Kills a process that a test was told of by its worker.
pub(crate) fn kill(pid: u32) {
    signal(pid, rustix::process::Signal::KILL);
}

pub(crate) fn signal(pid: u32, signal: rustix::process::Signal) {
    use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};
    let pid = Pid::from_raw(pid as i32).expect("a pid");
    if let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) {
        let _ = pidfd_send_signal(process, signal);
    }
}

/// A memory cgroup of version 1 below our own.
pub(crate) struct MemoryCgroup(PathBuf);

impl MemoryCgroup {
    /// `None` where we may not make one.
    pub(crate) fn with_limit(bytes: u64) -> Option<Self> {
        let table = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = table.lines().find_map(|line| line.split_once(":memory:"))?.1;
        let name = format!("snakepit-deaths-{}", std::process::id());
        let dir = Path::new("/sys/fs/cgroup/memory").join(own.trim_start_matches('/')).join(name);
        std::fs::create_dir(&dir).ok()?;
        let group = Self(dir);
        std::fs::write(group.0.join("memory.limit_in_bytes"), bytes.to_string()).ok()?;
        Some(group)
    }

    pub(crate) fn add(&self, pid: u32) {
        std::fs::write(self.0.join("cgroup.procs"), pid.to_string()).expect("moved into the cgroup");
    }

    /// The kernel may be busy with it for a moment.
    pub(crate) async fn remove(self) {
        until("the cgroup is gone", || std::fs::remove_dir(&self.0).is_ok()).await;
    }
}

/// Whether the kernel log can be read, and speaks of processes by the numbers that we know.
pub(crate) fn reads_kernel_log() -> bool {
    let first_namespace =
        std::fs::read_link("/proc/self/ns/pid").is_ok_and(|it| it.ends_with("pid:[4026531836]"));
    first_namespace && std::fs::File::open("/dev/kmsg").is_ok()
}

/// Until an event is told that is of interest.
pub(crate) async fn heard<T>(
    events: &mut snakepit::telemetry::Subscription,
    mut look: impl FnMut(snakepit::telemetry::Event) -> Option<T>,
) -> T {
    let wanted = async {
        loop {
            if let Some(found) = look(events.next().await.expect("the pool lives")) {
                return found;
            }
        }
    };
    soon("an event", wanted).await
}

/// Restarts that never make a test wait.
pub(crate) fn at_once() -> snakepit::policy::Restarts {
    snakepit::policy::Restarts::default()
        .failures(1000)
        .first_pause(Duration::from_millis(1))
        .longest_pause(Duration::from_millis(5))
}

/// How often a command of `fatal.py` was run.
pub(crate) fn runs_of(path: &str) -> u64 {
    std::fs::metadata(path).map_or(0, |file| file.len())
}
