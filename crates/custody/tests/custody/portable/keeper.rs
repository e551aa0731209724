//! What the portable keeper ends, what it gives its workers, and what escapes from it.

use std::io::Write;

use rustix::process::{Signal, kill_process};
use snakepit_custody::{Command, ExitStatus, Rlimit};

use super::host::Host;
use super::{assert_alive_and_end, bystander, in_time};
use crate::support::{Home, lines_of, output_of, shell};

/// Waits until all holders of a run's lock have ended.
fn wait_for_lock(home: &Home) {
    let runs = std::fs::read_dir(home.path().join("runs")).unwrap();
    for run in runs.flatten() {
        if let Ok(lock) = std::fs::File::open(run.path().join("lock")) {
            in_time("the keeper's end", move || lock.lock_shared().unwrap());
        }
    }
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
