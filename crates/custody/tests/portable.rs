//! The tier `group` without pidfds and shims: what it ends when the host dies, what the next start ends, and what
//! escapes. Built for Unixes other than Linux, and on Linux with `--cfg snakepit_portable`, as `./test` does.
//!
//! The host is this program, run again with the name of the test `a_host` and a variable that gives it its role.
#![cfg(portable)]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, test_kill_process, waitid};
use snakepit_custody::{
    self as custody, Command, Containment, CustodyOptions, ExitStatus, OpenError, Rlimit, Run, RunLife, Tier,
};
use support::{Home, lines_of, output_of, shell};

/// The role of a host that is run again. The state directory is in `STATE`.
const ROLE: &str = "SNAKEPIT_TEST_ROLE";
const STATE: &str = "SNAKEPIT_TEST_STATE";
const PATIENCE: Duration = Duration::from_secs(20);

/// Waits for an operation that has no time-out.
fn in_time<T: Send + 'static>(what: &str, wait: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, waited) = channel();
    std::thread::spawn(move || done.send(wait()));
    waited.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{what}: not in {PATIENCE:?}"))
}

/// Not a test on its own: the host of the other tests.
#[test]
fn a_host() {
    let Some(role) = std::env::var_os(ROLE) else { return };
    let state_dir = std::env::var_os(STATE).unwrap();
    let run = Run::open(CustodyOptions::default().state_dir(state_dir)).unwrap();
    for _ in 0..3 {
        // A worker and its child hold the host's output open as long as they live. Processes that a failing test leaves
        // end on their own, and hold no descriptor of the test runner.
        let script = "sleep 60 & trap '' TERM; echo worker $$; echo child $!; wait";
        run.spawn(shell(script).stderr(custody::Stdio::Null)).unwrap();
    }
    if role == "forked" {
        // SAFETY: the copy makes only calls that are allowed after a fork.
        let copy = unsafe {
            let copy = libc::fork();
            if copy == 0 {
                libc::close(1);
                libc::close(2);
                libc::alarm(60);
                libc::pause();
                libc::_exit(0);
            }
            copy
        };
        println!("copy {copy}");
    }
    println!("keeper {}", run.keeper_pid().unwrap());
    // The input does not end before the host is killed.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// A host in a separate process, with three workers that have one child each.
struct Host {
    process: Child,
    output: BufReader<std::process::ChildStdout>,
    pids: Vec<(String, Pid)>,
}

impl Host {
    #[expect(clippy::disallowed_methods, reason = "a host that is to be killed")]
    fn start(home: &Home, role: &str) -> Self {
        let mut process = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_host", "--nocapture"])
            .env(ROLE, role)
            .env(STATE, home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = process.stdout.take().unwrap();
        let (output, pids) = in_time("the workers' names", move || {
            let mut output = BufReader::new(output);
            let mut pids = Vec::new();
            while !pids.iter().any(|(name, _)| name == "keeper") || pids.len() < 7 {
                let mut line = String::new();
                assert_ne!(output.read_line(&mut line).unwrap(), 0, "{pids:?}");
                // Output of the test runner may come before the host's.
                let words: Vec<_> = line.split_whitespace().collect();
                if let [.., name @ ("worker" | "child" | "copy" | "keeper"), pid] = words[..] {
                    pids.push((name.to_owned(), Pid::from_raw(pid.parse().unwrap()).unwrap()));
                }
            }
            (output, pids)
        });
        Self { process, output, pids }
    }

    fn pid_of(&self, who: &str) -> Pid {
        self.pids.iter().find(|(name, _)| name == who).unwrap().1
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Kills host and keeper, so that neither can end the workers. Kills the keeper while the host is stopped.
    #[expect(
        clippy::disallowed_methods,
        reason = "the host is a child of the test, and the keeper a child of the stopped host"
    )]
    fn kill_with_keeper(&mut self) {
        let host = Pid::from_raw(self.process.id().cast_signed()).unwrap();
        kill_process(host, Signal::STOP).unwrap();
        // Before the stop, the host's threads may still see the keeper die.
        in_time("the host's stop", move || waitid(WaitId::Pid(host), WaitIdOptions::STOPPED).unwrap());
        kill_process(self.pid_of("keeper"), Signal::KILL).unwrap();
        self.kill();
    }

    /// Waits until no process holds the output any more: neither host nor workers nor their children.
    fn wait_for_all(self) {
        let mut output = self.output;
        in_time("the end of all workers", move || output.read_to_end(&mut Vec::new()).unwrap());
    }
}

/// Waits until all holders of a run's lock have ended.
fn wait_for_lock(home: &Home) {
    let runs = std::fs::read_dir(home.path().join("runs")).unwrap();
    for run in runs.flatten() {
        if let Ok(lock) = std::fs::File::open(run.path().join("lock")) {
            in_time("the keeper's end", move || lock.lock_shared().unwrap());
        }
    }
}

/// Starts a process that belongs to no run.
#[expect(clippy::disallowed_methods, reason = "a bystander that must be left alone")]
fn bystander() -> Child {
    use std::os::unix::process::CommandExt;
    std::process::Command::new("sleep").arg("60").process_group(0).spawn().unwrap()
}

fn assert_alive_and_end(mut bystander: Child) {
    assert!(bystander.try_wait().unwrap().is_none(), "the bystander was killed");
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}

#[test]
fn kill_9_of_the_host_ends_the_groups_and_removes_the_run() {
    let home = Home::new();
    let bystander = bystander();
    let mut host = Host::start(&home, "plain");
    host.kill();
    host.wait_for_all();
    wait_for_lock(&home);
    assert!(home.is_empty());
    assert_alive_and_end(bystander);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the copy is not reaped")]
fn a_forked_copy_of_the_host_does_not_keep_the_workers_alive() {
    let home = Home::new();
    let mut host = Host::start(&home, "forked");
    let copy = host.pid_of("copy");
    host.kill();
    host.wait_for_all();
    // The copy survived all of that, and still has the keeper's socket.
    kill_process(copy, Signal::KILL).unwrap();
}

#[test]
fn the_next_cleanup_ends_processes_that_outlived_host_and_keeper() {
    let home = Home::new();
    let bystander = bystander();
    let mut host = Host::start(&home, "plain");
    host.kill_with_keeper();
    let [dead] = &custody::ledger(home.path()).unwrap()[..] else { panic!("one run") };
    assert_eq!(dead.life, RunLife::Dead);
    assert_eq!(dead.processes.iter().filter(|process| process.alive).count(), 3);
    let report = custody::cleanup(home.path()).unwrap();
    assert!(report.is_clean());
    assert_eq!(report.runs.len(), 1);
    assert_eq!(report.runs[0].killed.len(), 3, "{report:?}");
    assert!(report.runs[0].removed);
    host.wait_for_all();
    assert!(home.is_empty());
    assert_alive_and_end(bystander);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "workers that were left alone and are not reaped")]
fn a_process_not_proven_to_belong_to_a_dead_run_is_spared_and_reported() {
    // A start time of another process, and no start time.
    for start in [[0xEE; 8], [0; 8]] {
        let home = Home::new();
        let mut host = Host::start(&home, "plain");
        host.kill_with_keeper();
        let run = std::fs::read_dir(home.path().join("runs")).unwrap().next().unwrap().unwrap().path();
        support::rewrite_records(&run.join("ledger"), |slot| {
            if slot[6] == 5 {
                slot[48..56].copy_from_slice(&start);
            }
        });
        let report = custody::cleanup(home.path()).unwrap();
        assert!(report.runs[0].killed.is_empty(), "{report:?}");
        assert_eq!(report.runs[0].let_be.len(), 3, "{report:?}");
        assert!(!report.is_clean() && !report.runs[0].removed, "they may be of the run: {report:?}");
        for (_, pid) in host.pids.iter().filter(|(name, _)| name != "keeper") {
            test_kill_process(*pid).unwrap();
            kill_process(*pid, Signal::KILL).unwrap();
        }
        host.wait_for_all();
    }
}

#[test]
fn a_workers_end_is_the_end_of_its_group() {
    let home = Home::new();
    let run = home.open();
    let (worker, lines) = lines_of(&run, shell("trap '' TERM; sleep 1000 & sleep 1000 & exit 3"));
    assert_eq!(worker.wait().status, ExitStatus::Code(3));
    // Both held the other end of the output.
    assert_eq!(in_time("the end of the output", move || lines.count()), 0);
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "only Linux has the command setsid")]
fn a_process_that_leaves_the_group_survives_as_the_tier_documents() {
    let home = Home::new();
    let run = home.open();
    let (mut release, gate) = std::os::unix::net::UnixStream::pair().unwrap();
    let script = "setsid sh -c 'echo away; read -r line <&7; echo $line' & wait";
    let (worker, mut lines) = lines_of(&run, shell(script).fd(gate, 7));
    assert_eq!(lines.next().unwrap(), "away");
    worker.kill().unwrap();
    assert_eq!(worker.wait().status, ExitStatus::Signal(libc::SIGKILL));
    release.write_all(b"free\n").unwrap();
    assert_eq!(in_time("a word of the escaped", move || lines.next()), Some("free".to_owned()));
}

#[test]
fn the_ledger_names_the_living_their_groups_and_their_tier() {
    let home = Home::new();
    let run = home.open();
    let worker = run.spawn(Command::new("sleep").arg("1000")).unwrap();
    let [entry] = &custody::ledger(home.path()).unwrap()[..] else { panic!("one run") };
    assert_eq!((entry.life, entry.tier), (RunLife::Live, Some(Tier::Group)));
    assert_eq!(entry.keeper_pid, run.keeper_pid());
    let [process] = &entry.processes[..] else { panic!("one worker") };
    assert_eq!((process.pid, process.pgid), (Some(worker.pid()), Some(worker.pid().as_raw())));
    assert!(process.alive && !process.at_gate);
    // A live run is not touched, even by other cleanups.
    assert!(custody::cleanup(home.path()).unwrap().runs.is_empty());
    assert!(worker.try_wait().is_none());
}

#[test]
fn the_substitute_for_a_pidfd_reports_the_end_of_the_main_process() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let home = Home::new();
    let run = home.open();
    let worker = run.spawn(Command::new("sleep").arg("1000")).unwrap();
    let ready = |seconds| {
        let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
        poll(&mut [PollFd::new(&worker.pidfd(), PollFlags::IN)], Some(&time)).unwrap()
    };
    assert_eq!(ready(0), 0);
    worker.kill().unwrap();
    assert_eq!(ready(20), 1);
}

#[test]
fn limits_and_niceness_reach_the_worker_and_oom_score_is_refused_in_words() {
    let home = Home::new();
    let run = home.open();
    let limit = Rlimit { resource: libc::RLIMIT_NOFILE as i32, soft: 77, hard: 77 };
    assert_eq!(output_of(&run, shell("ulimit -n; nice").rlimit(limit).nice(5)), "77\n5\n");
    // The limits bind the worker and not its launch, which would have no descriptor and no memory left.
    let limit = Rlimit { resource: libc::RLIMIT_NOFILE as i32, soft: 4, hard: 4 };
    assert_eq!(output_of(&run, shell("ulimit -n").rlimit(limit)), "4\n");
    let limit = Rlimit { resource: libc::RLIMIT_DATA as i32, soft: 1 << 20, hard: 1 << 20 };
    let many = (0..40_000).map(|number| number.to_string());
    let worker = run.spawn(Command::new("true").args(many).rlimit(limit)).unwrap();
    assert_eq!(worker.wait().status, ExitStatus::Code(0));
    let error = run.spawn(Command::new("true").oom_score_adj(5)).unwrap_err();
    assert!(error.to_string().contains("oom_score_adj"), "{error}");
}

#[test]
fn the_tiers_of_linux_are_refused_with_a_reason() {
    let home = Home::new();
    for containment in [Containment::Namespace, Containment::Shim] {
        let config = CustodyOptions::default().containment(containment).state_dir(home.path());
        let error = Run::open(config).unwrap_err();
        assert!(matches!(&error, OpenError::Tier { reason, .. } if reason.contains("only Linux")), "{error}");
    }
    assert_eq!(home.open().tier(), Tier::Group);
}
