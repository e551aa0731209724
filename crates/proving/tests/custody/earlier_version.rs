//! Runs of an earlier version: its ledger is read, its live runs are left alone, and its dead runs are ended.
//!
//! The commit cb0878f wrote the sample while four workers ran in the tier `auto`. The second worker had ended. Each
//! test rewrites the sample for this boot and for processes that live here.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use rustix::fs::FlockOperation;
use serde_json::Value;
use snakepit_proving::{ObservedProcess, built, ledger};
use tempfile::TempDir;

const SAMPLE: &[u8] = include_bytes!("../../../custody/tests/data/run-v1.ledger");
/// The run's id, which is the name of its directory and is in its opening record.
const RUN: &str = "01a1e3f6c2af70a1a36facb2e0b6a8d4";
/// The workers without a recorded end.
const WORKERS: [u64; 3] = [1, 3, 4];

/// A state directory with the sample in it, and processes that stand in for those that the sample names.
struct SampleState {
    home: TempDir,
    processes: Vec<Child>,
}

impl SampleState {
    fn new() -> Self {
        Self { home: tempfile::tempdir().expect("a directory"), processes: Vec::new() }
    }

    fn run_dir(&self) -> PathBuf {
        self.home.path().join("runs").join(RUN)
    }

    /// Writes the run's directory and returns its lock.
    fn record(&self, bytes: &[u8]) -> File {
        use std::os::unix::fs::PermissionsExt;
        let dir = self.run_dir();
        std::fs::create_dir_all(&dir).expect("a run's directory");
        for dir in dir.ancestors().take(3) {
            std::fs::set_permissions(dir, PermissionsExt::from_mode(0o700)).expect("its mode");
        }
        ledger::write(&dir, bytes);
        let lock = File::create(dir.join("lock")).expect("a lock");
        for file in ["ledger", "lock"] {
            std::fs::set_permissions(dir.join(file), PermissionsExt::from_mode(0o600)).expect("its mode");
        }
        lock
    }

    /// Starts a process that waits. It has no marker: all tests here use the same run, and one of them searches for its
    /// marker.
    fn process(&mut self) -> ObservedProcess {
        self.start(&mut Command::new("sleep"))
    }

    /// Starts a process with the run's marker.
    fn marked_process(&mut self) -> ObservedProcess {
        self.start(Command::new("sleep").env("SNAKEPIT_RUN_ID", RUN))
    }

    fn start(&mut self, sleep: &mut Command) -> ObservedProcess {
        sleep.arg("1000").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = sleep.spawn().expect("start sleep");
        let process = ObservedProcess::of(child.id().cast_signed());
        self.processes.push(child);
        process
    }

    fn snakepit(&self, words: &[&str]) -> Output {
        let mut snakepit = Command::new(built::snakepit());
        snakepit.args(words).env("SNAKEPIT_STATE_DIR", self.home.path()).stdin(Stdio::null());
        snakepit.output().expect("run snakepit")
    }

    fn json(&self, verb: &str) -> Value {
        let output = self.snakepit(&[verb, "--json"]);
        assert!(output.status.success(), "{verb}: {output:?}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }
}

impl Drop for SampleState {
    fn drop(&mut self) {
        for child in &mut self.processes {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn has_pidfs() -> bool {
    let has = snakepit_custody::probe().pidfs.is_ok();
    if !has {
        snakepit_proving::unproven("the sample identifies processes by pidfs, which this kernel lacks");
    }
    has
}

/// Returns the sample as if these processes were its own.
fn sample_of(
    host: &ObservedProcess,
    keeper: &ObservedProcess,
    workers: &[(u64, ObservedProcess)],
) -> Vec<u8> {
    let mut bytes = SAMPLE.to_vec();
    ledger::move_here(&mut bytes);
    ledger::rename_host(&mut bytes, ledger::LedgerIdentity::of(host));
    ledger::rename_keeper(&mut bytes, ledger::LedgerIdentity::of(keeper));
    for (key, worker) in workers {
        ledger::rename_worker(&mut bytes, *key, ledger::LedgerIdentity::of(worker));
    }
    bytes
}

fn names(run: &Value) -> Vec<&str> {
    let processes = run["processes"].as_array().expect("processes");
    processes.iter().filter_map(|process| process["worker"].as_str()).collect()
}

#[test]
fn a_run_of_another_boot_is_listed_and_removed_without_a_signal() {
    let sample = SampleState::new();
    let mut bytes = SAMPLE.to_vec();
    ledger::move_here(&mut bytes);
    ledger::move_to_another_boot(&mut bytes);
    sample.record(&bytes);
    let report = sample.json("ledger");
    let run = &report["runs"][0];
    assert_eq!((&run["run"], &run["tier"]), (&RUN.into(), &"shim".into()), "{report:#}");
    assert_eq!((names(run), &run["trouble"]), (vec!["w1", "w3", "w4"], &Value::Array(vec![])), "{report:#}");
    let report = sample.json("cleanup");
    let run = &report["runs"][0];
    assert_eq!((&run["removed"], &run["killed"]), (&true.into(), &Value::Array(vec![])), "{report:#}");
    assert!(!sample.run_dir().exists());
}

#[test]
fn a_live_run_is_left_alone_by_ledger_cleanup_and_start() {
    if !has_pidfs() {
        return;
    }
    let mut sample = SampleState::new();
    let (host, keeper) = (sample.process(), sample.process());
    let workers = WORKERS.map(|key| (key, sample.process()));
    let bytes = sample_of(&host, &keeper, &workers);
    let lock = sample.record(&bytes);
    rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)
        .expect("the lock, as the host holds it");

    let report = sample.json("ledger");
    let run = &report["runs"][0];
    let pids = (&run["host_pid"], &run["keeper_pid"]);
    assert_eq!(
        (&run["life"], pids),
        (&"live".into(), (&host.pid().into(), &keeper.pid().into())),
        "{report:#}"
    );
    for (process, (_, worker)) in run["processes"].as_array().expect("processes").iter().zip(&workers) {
        assert_eq!((&process["pid"], &process["alive"]), (&worker.pid().into(), &true.into()), "{report:#}");
    }
    assert_eq!(sample.json("cleanup")["runs"], Value::Array(vec![]));
    let started = sample.snakepit(&["exec", "--", "true"]);
    assert!(started.status.success(), "{started:?}");
    for process in [&host, &keeper].into_iter().chain(workers.iter().map(|(_, worker)| worker)) {
        assert!(process.is_alive(), "process {} of a live run was ended", process.pid());
    }
    assert!(ledger::read(&sample.run_dir()) == bytes, "its ledger is as it was");
}

#[test]
fn a_dead_run_is_ended_by_the_next_start() {
    if !has_pidfs() {
        return;
    }
    let mut sample = SampleState::new();
    let (host, keeper) = (sample.process(), sample.process());
    let workers = WORKERS.map(|key| (key, sample.marked_process()));
    let bytes = sample_of(&host, &keeper, &workers);
    sample.record(&bytes);
    host.end();
    keeper.end();
    let started = sample.snakepit(&["exec", "--", "true"]);
    assert!(started.status.success(), "{started:?}");
    for (_, worker) in &workers {
        worker.must_end("a worker of a dead run");
    }
    assert!(!sample.run_dir().exists(), "its record is removed");
}

/// The sample can be read without the library.
#[test]
fn the_sample_is_whole_and_small() {
    assert_eq!(SAMPLE.len() % ledger::SLOT, 0);
    assert!(SAMPLE.len() < 10_000);
    let id = SAMPLE[116..132].iter().fold(0_u128, |id, byte| id << 8 | u128::from(*byte));
    assert_eq!(format!("{id:032x}"), RUN, "the run's opening is the first record");
}
