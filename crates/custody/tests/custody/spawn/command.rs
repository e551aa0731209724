//! What a worker gets from its command.
//!
//! About `crates/custody/src/spawn/command.rs` and `crates/custody/src/keeper/shim/launch.rs`.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use snakepit_custody::{Command, CustodyEvent, ExitStatus, Rlimit, WorkerId};

use crate::support::{Home, output_of, shell};

#[test]
fn a_worker_finds_its_marker_its_directory_and_its_environment() {
    let home = Home::new();
    let run = home.open();
    let script = "echo $SNAKEPIT_RUN_ID $SNAKEPIT_WORKER_ID $COLOUR ${HOME-none}; pwd";
    let command = shell(script)
        .env("COLOUR", "green")
        .env_remove("HOME")
        .current_dir("/usr")
        .worker_id(WorkerId::new("painter/1").unwrap());
    let text = output_of(&run, command);
    assert_eq!(text, format!("{} painter/1 green none\n/usr\n", run.id()));
}

#[test]
fn an_empty_environment_still_has_the_marker() {
    let home = Home::new();
    let run = home.open();
    let text = output_of(&run, Command::new("/usr/bin/env").env_clear());
    let names: Vec<_> = text.lines().filter_map(|line| line.split('=').next()).collect();
    assert_eq!(names, ["SNAKEPIT_RUN_ID", "SNAKEPIT_WORKER_ID"]);
}

#[test]
fn a_handed_socket_arrives_under_the_number_asked_for() {
    let home = Home::new();
    let run = home.open();
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    ours.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let worker = run.spawn(shell("read -r line <&7; echo \"got $line\" >&7").fd(theirs, 7)).unwrap();
    ours.write_all(b"hello\n").unwrap();
    let mut text = String::new();
    // The end comes only if neither keeper nor shim holds a copy.
    ours.read_to_string(&mut text).unwrap();
    assert_eq!(text, "got hello\n");
    assert_eq!(worker.wait().status, ExitStatus::Code(0));
}

#[test]
fn descriptors_may_be_handed_under_each_others_numbers() {
    let home = Home::new();
    let run = home.open();
    // The numbers 3 to 30 include those that the process at the gate uses itself.
    let files: Vec<_> = (3..=30).map(|number| (number, tempfile::tempfile().unwrap())).collect();
    let mut command = shell("for n in $(seq 3 30); do echo $n >/proc/self/fd/$n || exit 9; done");
    for (number, file) in &files {
        command = command.fd(file.try_clone().unwrap(), *number);
    }
    assert_eq!(run.spawn(command).unwrap().wait().status, ExitStatus::Code(0));
    for (number, file) in files {
        let mut text = String::new();
        let mut again =
            std::fs::File::open(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file))).unwrap();
        again.read_to_string(&mut text).unwrap();
        assert_eq!(text, format!("{number}\n"));
    }
}

#[test]
fn nothing_but_what_was_handed_over_is_open_in_a_worker() {
    let home = Home::new();
    let run = home.open();
    let text = output_of(&run, shell("ls /proc/$$/fd"));
    assert_eq!(text.split_whitespace().collect::<Vec<_>>(), ["0", "1", "2"]);
}

#[test]
#[cfg_attr(portable, ignore = "only Linux has oom_score_adj; the tests in portable/ test the rest")]
fn limits_niceness_and_oom_score_reach_the_worker() {
    let home = Home::new();
    let run = home.open();
    let command = shell("ulimit -n; nice; cat /proc/self/oom_score_adj")
        .rlimit(Rlimit { resource: libc::RLIMIT_NOFILE.cast_signed(), soft: 77, hard: 77 })
        .nice(5)
        .oom_score_adj(321);
    assert_eq!(output_of(&run, command), "77\n5\n321\n");
}

#[test]
#[cfg_attr(portable, ignore = "only Linux has oom_score_adj; the tests in portable/ test the rest")]
fn the_oom_score_of_a_worker_does_not_apply_to_its_shim() {
    let home = Home::new();
    let run = home.open();
    let events = run.events().unwrap();
    let score = |pid| std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
    let own = score(snakepit_custody::Pid::current());
    let worker = run.spawn(Command::new("sleep").arg("1000").oom_score_adj(321)).unwrap();
    // The shim reports this only once its memory is no longer borrowed.
    worker.signal(libc::SIGSTOP).unwrap();
    while !matches!(events.next_within(Duration::from_secs(20)).unwrap(), CustodyEvent::Stopped { .. }) {}
    assert_eq!((score(worker.pid()).as_str(), score(worker.shim_pid())), ("321\n", own));
}

#[test]
#[cfg_attr(portable, ignore = "only Linux has oom_score_adj; the tests in portable/ test the rest")]
fn resource_limits_apply_to_the_worker_and_not_to_its_launch() {
    let home = Home::new();
    let run = home.open();
    // Under these limits, a process has no free descriptor, and then no memory.
    let command = shell("ulimit -n; cat /proc/self/oom_score_adj")
        .rlimit(Rlimit { resource: libc::RLIMIT_NOFILE.cast_signed(), soft: 4, hard: 4 })
        .oom_score_adj(321);
    assert_eq!(output_of(&run, command), "4\n321\n");
    let many = (0..40_000).map(|number| number.to_string());
    let command = Command::new("true").args(many).rlimit(Rlimit {
        resource: libc::RLIMIT_DATA.cast_signed(),
        soft: 1 << 20,
        hard: 1 << 20,
    });
    assert_eq!(run.spawn(command).unwrap().wait().status, ExitStatus::Code(0));
}

#[test]
fn a_worker_starts_with_the_signal_dispositions_that_the_host_was_started_with() {
    const OF_THE_C_LIBRARY: u64 = 0x1_8000_0000;
    let home = Home::new();
    let run = home.open();
    let text = output_of(&run, Command::new("grep").args(["-E", "SigBlk|SigIgn", "/proc/self/status"]));
    // The test program was started with nothing ignored or blocked. By now, it ignores SIGPIPE. The C library reserves
    // signals 32 and 33: its posix_spawn leaves them ignored in the processes that it starts.
    for line in text.lines() {
        let bits = u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap();
        assert_eq!(bits & !OF_THE_C_LIBRARY, 0, "{text}");
    }
}

#[test]
fn a_command_of_many_arguments_arrives_whole() {
    let home = Home::new();
    let run = home.open();
    let arguments: Vec<String> = (0..20_000).map(|number| format!("argument-{number:06}")).collect();
    let command = shell("echo $# ${20000}").arg("sh").args(&arguments);
    assert_eq!(output_of(&run, command), "20000 argument-019999\n");
}
