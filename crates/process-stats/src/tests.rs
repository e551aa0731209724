//! Tests the statistics with real processes in custody.

#[path = "../../proving/src/unproven.rs"]
#[expect(
    dead_code,
    unreachable_pub,
    clippy::disallowed_methods,
    reason = "it is the proving crate's, and partly for others"
)]
mod unproven;

use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write, pipe};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use super::{OomVerdict, OomWatch, ProcessStats, Pss, proc};
use snakepit_custody::{Command, CustodyOptions, Exit, ExitStatus, Run, WorkerProcess};

/// Far longer than a busy machine needs.
const PATIENCE: Duration = Duration::from_secs(20);

/// A program that executes its input line by line, and prints when each line is done.
const OBEY: &str = "import sys, os, subprocess, signal, threading, time, gc
for line in sys.stdin:
    exec(line)
    print('done', flush=True)";

struct Obedient {
    worker: WorkerProcess,
    orders: PipeWriter,
    answers: BufReader<PipeReader>,
    run: Run,
    _state: tempfile::TempDir,
}

impl Obedient {
    fn start() -> Self {
        let state = tempfile::tempdir().expect("a directory");
        let config = CustodyOptions::default().state_dir(state.path());
        let run = Run::open(config).expect("a run");
        let (stdin, orders) = pipe().expect("a pipe");
        let (answers, stdout) = pipe().expect("a pipe");
        let (stdin, stdout): (std::os::fd::OwnedFd, std::os::fd::OwnedFd) = (stdin.into(), stdout.into());
        let command = Command::new("python3").args(["-I", "-c", OBEY]).stdin(stdin).stdout(stdout);
        let worker = run.spawn(command).expect("a worker");
        let mut obedient = Self { worker, orders, answers: BufReader::new(answers), run, _state: state };
        assert!(obedient.tell("pass"), "it is ready");
        obedient
    }

    /// Sends an order. Returns whether it was carried out.
    fn tell(&mut self, order: &str) -> bool {
        writeln!(self.orders, "{order}").expect("an order");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("an answer");
        answer == "done\n"
    }

    fn process_stats(&self, pss: Pss) -> Option<ProcessStats> {
        ProcessStats::read(self.worker.pid(), Some(self.worker.shim_pid()), pss)
    }
}

impl Drop for Obedient {
    fn drop(&mut self) {
        let report = self.run.stop_within(Duration::ZERO);
        assert!(std::thread::panicking() || report.survivors.is_empty(), "{report:?}");
    }
}

/// Polls until `look` returns a value. Only for changes without an event: a state letter, a cgroup that is busy for a
/// moment.
fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    let (_never, pause) = std::sync::mpsc::channel::<()>();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "never came: {what}");
        let _ = pause.recv_timeout(Duration::from_millis(2));
    }
}

const MIB: u64 = 1 << 20;

/// Starts a child that starts a grandchild and ends. The grandchild stays and holds memory.
const FAMILY: &str = "r, w = os.pipe(); \
    child = os.fork() or (os.fork() and os._exit(0)) or (bytearray(b'x' * (50 << 20)), os.write(w, b'1'), signal.pause()); \
    os.read(r, 1); os.waitpid(child, 0)";

#[test]
fn orphaned_descendants_of_a_worker_count_and_its_shim_does_not() {
    let mut obedient = Obedient::start();
    let alone = eventually("asleep", || obedient.process_stats(Pss::Measure).filter(|it| it.state == 'S'));
    assert_eq!((alone.processes, alone.threads), (1, 1));
    assert!((4 * MIB..100 * MIB).contains(&alone.rss_bytes), "{alone:?}");
    assert!(alone.pss_bytes.is_some_and(|pss| pss > MIB && pss <= alone.rss_bytes + MIB), "{alone:?}");

    assert!(obedient.tell(FAMILY));
    let family = obedient.process_stats(Pss::Measure).expect("statistics");
    assert_eq!(family.processes, 2, "the grandchild is the shim's now: {family:?}");
    assert!(family.rss_bytes > alone.rss_bytes + 50 * MIB, "{family:?}");
    let (pss, rss) = (family.pss_bytes.expect("a share"), family.rss_bytes);
    assert!(pss > 50 * MIB && pss < rss, "what they share is counted once: {family:?}");
    assert_eq!(obedient.process_stats(Pss::Skip).expect("statistics").pss_bytes, None);

    assert!(
        obedient.tell(
            "[threading.Thread(target=time.sleep, args=(600,), daemon=True).start() for _ in range(3)]"
        )
    );
    assert_eq!(obedient.process_stats(Pss::Skip).expect("statistics").threads, 5);
}

#[test]
fn a_search_by_children_and_one_by_parents_find_the_same_processes() {
    let mut obedient = Obedient::start();
    assert!(obedient.tell(FAMILY));
    assert!(
        obedient.tell("threading.Thread(target=lambda: subprocess.Popen(['tail', '-f', '/dev/null'])).run()")
    );
    let shim = obedient.worker.shim_pid().as_raw();
    let mut by_parents = proc::by_parents(shim);
    by_parents.sort_unstable();
    assert_eq!(by_parents.len(), 3, "{by_parents:?}");
    if let Some(mut by_children) = proc::by_children(shim) {
        by_children.sort_unstable();
        assert_eq!(by_children, by_parents);
    }
    let without_shim = ProcessStats::read(obedient.worker.pid(), None, Pss::Skip).expect("statistics");
    assert_eq!(without_shim.processes, 2, "who is lost is not found without the shim");
}

#[test]
fn cpu_time_includes_that_of_ended_children() {
    let mut obedient = Obedient::start();
    let before = obedient.process_stats(Pss::Skip).expect("statistics").cpu;
    let burn = "t = time.process_time()\\nwhile time.process_time() < t + 0.3: pass";
    assert!(obedient.tell(&format!("exec(\"{burn}\")")));
    let burned = obedient.process_stats(Pss::Skip).expect("statistics").cpu;
    assert!(burned >= before + Duration::from_millis(250), "{before:?} {burned:?}");
    assert!(obedient.tell(&format!("subprocess.run([sys.executable, '-c', \"import time\\n{burn}\"])")));
    let reaped = obedient.process_stats(Pss::Skip).expect("statistics").cpu;
    assert!(reaped >= burned + Duration::from_millis(250), "{burned:?} {reaped:?}");
}

#[test]
fn a_stopped_worker_reads_as_stopped_and_a_gone_one_as_absent() {
    let obedient = Obedient::start();
    let state = |wanted: char| move |it: ProcessStats| (it.state == wanted).then_some(());
    obedient.worker.signal(19).expect("STOP");
    eventually("stopped", || obedient.process_stats(Pss::Skip).and_then(state('T')));
    obedient.worker.signal(18).expect("CONT");
    eventually("running", || obedient.process_stats(Pss::Skip).and_then(state('S')));
    obedient.worker.kill().expect("KILL");
    obedient.worker.wait_within(PATIENCE).expect("gone");
    assert_eq!(obedient.process_stats(Pss::Measure), None);
    // A pid that belongs to another process by now.
    let (ours, shim) = (snakepit_custody::Pid::current(), obedient.worker.shim_pid());
    assert_eq!(ProcessStats::read(ours, Some(shim), Pss::Skip), None);
}

/// A memory cgroup of version 1 below our own, removed when dropped.
struct MemoryCgroup(PathBuf);

impl MemoryCgroup {
    /// Creates the cgroup. Returns `None` if that is not permitted.
    fn with_limit(bytes: u64) -> Option<Self> {
        let table = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = table.lines().find_map(|line| line.split_once(":memory:"))?.1;
        let name = format!("snakepit-oom-{}", std::process::id());
        let dir = Path::new("/sys/fs/cgroup/memory").join(own.trim_start_matches('/')).join(name);
        std::fs::create_dir(&dir).ok()?;
        let group = Self(dir);
        std::fs::write(group.0.join("memory.limit_in_bytes"), bytes.to_string()).ok()?;
        Some(group)
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            eventually("the removal of the cgroup", || std::fs::remove_dir(&self.0).ok());
        }
    }
}

#[test]
fn an_oom_kill_is_distinguished_from_a_kill_by_another_process() {
    let Some(cgroup) = MemoryCgroup::with_limit(50 * MIB) else {
        return unproven::unproven("no memory cgroup of version 1 that we may make");
    };
    let mut greedy = Obedient::start();
    let victim = Obedient::start();
    let place = cgroup.0.join("cgroup.procs");
    std::fs::write(&place, greedy.worker.pid().to_string()).expect("moved into the cgroup");
    let mut both = OomWatch::new(Some(&cgroup.0));
    // The only source if the kernel log is not readable.
    let mut counting = OomWatch::new(Some(&cgroup.0)).without_log();

    let killed = |worker: &WorkerProcess| {
        let exit = worker.wait_within(PATIENCE);
        assert!(matches!(exit, Some(Exit { status: ExitStatus::Signal(9), .. })), "{exit:?}");
    };
    victim.worker.kill().expect("KILL");
    killed(&victim.worker);
    let pid = victim.worker.pid().as_raw();
    assert_eq!((both.verdict(pid), counting.verdict(pid)), (OomVerdict::No, OomVerdict::No));

    assert!(!greedy.tell("hoard = [bytearray(b'x' * (1 << 20)) for _ in range(400)]"), "it lives");
    killed(&greedy.worker);
    let pid = greedy.worker.pid().as_raw();
    assert_eq!((both.verdict(pid), counting.verdict(pid)), (OomVerdict::Yes, OomVerdict::Yes));
    assert_eq!((both.verdict(pid), counting.verdict(pid)), (OomVerdict::No, OomVerdict::No), "once only");
}

/// `cargo test -p snakepit-core --lib measure_the_cost_of_reading_process_statistics -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn measure_the_cost_of_reading_process_statistics() {
    let mut obedient = Obedient::start();
    assert!(obedient.tell("hoard = bytearray(b'x' * (200 << 20))"));
    assert!(obedient.tell("subprocess.Popen(['tail', '-f', '/dev/null'])"));
    for (name, pss, looks) in [("without Pss", Pss::Skip, 2000_u32), ("with Pss", Pss::Measure, 200)] {
        let mut times: Vec<Duration> = (0..looks)
            .map(|_| {
                let start = Instant::now();
                obedient.process_stats(pss).expect("statistics");
                start.elapsed()
            })
            .collect();
        times.sort_unstable();
        println!("{name}: median {:?}, fastest {:?}", times[times.len() / 2], times[0]);
    }
    let start = Instant::now();
    let found = proc::by_parents(obedient.worker.shim_pid().as_raw()).len();
    println!("descendants by the parents of every process: {:?} for {found}", start.elapsed());
    println!("{:?}", obedient.process_stats(Pss::Measure));
}
