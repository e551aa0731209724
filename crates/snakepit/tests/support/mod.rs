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
use snakepit::custody::{Containment, CustodyOptions};
use snakepit::{Builder, CallError, PoolOptions, Snakepit, Value, args};
use tempfile::TempDir;
pub(crate) use unproven::unproven;

/// The time limit for what takes milliseconds on an idle machine.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// Returns the tiers that this machine supports. Reports those that are left out.
pub(crate) fn possible<const N: usize>(tiers: [Containment; N]) -> impl Iterator<Item = Containment> {
    tiers.into_iter().filter(|tier| *tier != Containment::Namespace || has_namespaces())
}

/// Reports whether there are PID namespaces. If not, says so.
pub(crate) fn has_namespaces() -> bool {
    let refusal = unproven::namespace_refusal(None);
    refusal.as_deref().inspect(|why| unproven(why)).is_none()
}

/// Returns a pool of workers from a file of the tests.
pub(crate) fn worker(file: &str) -> PoolOptions {
    snakepit::python(python(file))
}

/// Returns such a worker, to be changed before it becomes a pool.
///
/// With `SNAKEPIT_TEST_PYTHON`, which names an interpreter with msgspec, the worker uses msgspec or does not start.
pub(crate) fn python(file: &str) -> PythonWorker {
    let worker = PythonWorker::new(workers().join(file));
    match python_with_msgspec() {
        Some(python) => worker.interpreter(python).env("SNAKEPIT_CODEC", "msgspec"),
        None => worker,
    }
}

/// Returns the interpreter that was set for the tests.
pub(crate) fn python_with_msgspec() -> Option<PathBuf> {
    std::env::var_os("SNAKEPIT_TEST_PYTHON").filter(|python| !python.is_empty()).map(PathBuf::from)
}

/// Returns a worker without the SDK that misbehaves in the named way.
pub(crate) fn raw(mode: &str) -> PoolOptions {
    raw_with(mode, Path::new(""))
}

/// Returns such a worker with a file that it writes to.
pub(crate) fn raw_with(mode: &str, path: &Path) -> PoolOptions {
    let file = workers().join("raw.py").into_os_string();
    snakepit::command(["python3".into(), file, mode.into(), path.into()]).name("raw").workers(1)
}

fn workers() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/workers")
}

/// Returns the number of rounds for a test of a race: all if `SNAKEPIT_FULL` is set, a twentieth if `SNAKEPIT_QUICK` is
/// set, otherwise a quarter.
pub(crate) fn rounds(all: usize) -> usize {
    match () {
        () if is_full() => all,
        () if is_set("SNAKEPIT_QUICK") => all.div_ceil(20),
        () => all.div_ceil(4),
    }
}

/// Reports whether a test should take all the time that its promise names.
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
        Self::build_with(builder, CustodyOptions::default()).await
    }

    pub(crate) async fn build_with(builder: Builder, custody: CustodyOptions) -> Self {
        let home = tempfile::tempdir().expect("a directory");
        let custody = custody.state_dir(home.path());
        let pit = builder.custody(custody).start().await.unwrap_or_else(|error| panic!("{}", chain(&error)));
        Self { pit, home }
    }

    /// Returns a path for a file to which workers write.
    pub(crate) fn file(&self, name: &str) -> String {
        let files = self.home.path().join("files");
        std::fs::create_dir_all(&files).expect("a directory for files");
        files.join(name).to_string_lossy().into_owned()
    }

    /// Returns the state directory.
    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// Stops the engine, and proves that nothing is left.
    pub(crate) async fn end(self) {
        self.pit.stop().await;
        self.prove_nothing_is_left();
    }

    /// Stops the engine like [`Pit::end`], without time for what is under way.
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

/// Returns the runs that are recorded in a state directory.
pub(crate) fn runs_in(home: &Path) -> Vec<String> {
    let Ok(runs) = std::fs::read_dir(home.join("runs")) else { return Vec::new() };
    let names = runs.map(|run| run.expect("a run").file_name().to_string_lossy().into_owned());
    names.filter(|name| !name.starts_with('.')).collect()
}

pub(crate) fn config(home: &TempDir) -> CustodyOptions {
    CustodyOptions::default().state_dir(home.path())
}

impl Deref for Pit {
    type Target = Snakepit;

    fn deref(&self) -> &Snakepit {
        &self.pit
    }
}

/// Returns the text of an error with its sources.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

/// Polls until a condition holds that no event reports: it depends on another process, or on a counter.
pub(crate) async fn until(what: &str, holds: impl FnMut() -> bool) {
    until_within(SOON, what, holds).await;
}

/// Waits like [`until`], for what takes many seconds on an idle machine.
pub(crate) async fn until_within(limit: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !holds() {
        assert!(Instant::now() < deadline, "in vain waited until {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Waits for the work, within the time limit for everything.
pub(crate) async fn soon<F: IntoFuture>(what: &str, work: F) -> F::Output {
    let done = tokio::time::timeout(SOON, work.into_future()).await;
    done.unwrap_or_else(|_| panic!("{what} takes longer than {SOON:?}"))
}

/// Reports whether a process with this number runs. A zombie does not.
pub(crate) fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
    state.is_some_and(|state| !"ZX".contains(state))
}

/// Returns the lines of a file that workers write.
pub(crate) fn lines(path: &str) -> Vec<String> {
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Teaches a pool of `hostile.py` that its `mark` calls are short, so that they are sent ahead.
///
/// One slow call raises a pool's estimate at once, and fast calls lower it slowly. So this makes fast calls until an
/// upper bound of the estimate, computed here from longer times, is low enough. The number of attempts is limited,
/// because some machines are too slow.
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

/// Returns a time below `most` that differs from round to round, in microseconds.
pub(crate) fn jitter(round: usize, most: u64) -> Duration {
    Duration::from_micros((round as u64).wrapping_mul(7919) % most)
}

/// A reproducible random number generator: the same seed gives the same numbers (splitmix64).
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((number ^ (number >> 31)) % end as u64) as usize
    }
}

/// Returns the number in an environment variable, such as a seed or a length.
pub(crate) fn number_from_env(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok().filter(|value| !value.is_empty())?;
    Some(value.parse().unwrap_or_else(|error| panic!("{name}={value}: {error}")))
}

/// Returns the processes of the serving workers of a pool, ordered by slot.
pub(crate) fn pids(pool: &snakepit::Pool) -> Vec<u32> {
    let mut workers = pool.workers();
    workers.sort_by_key(|worker| worker.slot);
    workers.iter().filter_map(|worker| worker.pid).map(|pid| pid.as_raw() as u32).collect()
}

/// Returns why a pool has fewer workers than it should, or `None` if it has enough.
pub(crate) fn trouble(pool: &snakepit::Pool) -> Option<String> {
    pool.health().borrow().reason().map(str::to_owned)
}

/// Returns the value below which so many percent of the sorted values are.
pub(crate) fn percentile<T: Copy>(sorted: &[T], percent: usize) -> T {
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

/// Returns the fault that the error of a dead worker names.
pub(crate) fn fault_of(error: &CallError) -> String {
    match error.autopsy() {
        Some(autopsy) => autopsy.fault.clone().unwrap_or_else(|| format!("no fault, but {autopsy}")),
        None => panic!("not a death: {error}"),
    }
}

/// Kills a process whose number its worker has reported.
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
    /// Creates a cgroup. Returns `None` if that is not permitted.
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

    /// Removes the cgroup, which the kernel may keep busy for a moment.
    pub(crate) async fn remove(self) {
        until("the cgroup is gone", || std::fs::remove_dir(&self.0).is_ok()).await;
    }
}

/// Reports whether the kernel log is readable and uses our process numbers.
pub(crate) fn reads_kernel_log() -> bool {
    let first_namespace =
        std::fs::read_link("/proc/self/ns/pid").is_ok_and(|it| it.ends_with("pid:[4026531836]"));
    first_namespace && std::fs::File::open("/dev/kmsg").is_ok()
}

/// Waits for an event that the function accepts.
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

/// Returns restarts without pauses.
pub(crate) fn at_once() -> snakepit::policy::Restarts {
    snakepit::policy::Restarts::default()
        .failures(1000)
        .first_pause(Duration::from_millis(1))
        .longest_pause(Duration::from_millis(5))
}

/// Returns how often a command of `fatal.py` was run.
pub(crate) fn runs_of(path: &str) -> u64 {
    std::fs::metadata(path).map_or(0, |file| file.len())
}
