//! An unprivileged worker ends and leaves a child that became root through a setuid program. No part of custody may
//! signal it. The child is named and delays neither `wait`, nor `stop`, nor the end of the keeper. The promise: what
//! cannot be ended is reported, never called a success, and everything is bounded.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use snakepit_proving::{Case, Deadline, GridTier, HostProcess, OpenAs};

use super::expected;

/// Far more time than custody takes before it gives up on such a child.
const IN_TIME: Duration = Duration::from_secs(10);

#[test]
fn shim_when_the_run_is_stopped() {
    as_somebody(GridTier::Shim, named_and_left);
}

#[test]
fn auto_when_the_run_is_stopped() {
    as_somebody(GridTier::Auto, named_and_left);
}

#[test]
fn shim_when_the_host_is_killed() {
    as_somebody(GridTier::Shim, the_host_is_killed);
}

/// Only the child's shim could have reported it, so the record stays for a cleanup with more privileges.
#[test]
fn group_when_the_host_is_killed() {
    as_somebody(GridTier::Group, |case, host, program| {
        the_host_is_killed(case, host, program);
        assert_eq!(case.run_dirs().len(), 1, "the record stays");
    });
}

#[test]
fn group_when_the_run_is_stopped() {
    as_somebody(GridTier::Group, named_and_left);
}

#[test]
fn shim_when_its_shim_is_killed() {
    as_somebody(GridTier::Shim, its_shim_is_killed);
}

fn as_somebody(tier: GridTier, body: fn(&mut Case, HostProcess, &Path)) {
    if !snakepit_proving::is_root() {
        return super::unproven("only root can make a setuid program");
    }
    let options = OpenAs { user: Some(100_000 + std::process::id()), ..OpenAs::default() };
    let mut case = Case::with(&super::programs(), tier, expected::cell("elevated_child", tier), options);
    let program = case.dir().join("elevated");
    let made = Command::new("install").args(["-m", "4755"]).arg(case.hostile()).arg(&program).status();
    assert!(made.expect("run `install`").success(), "make a setuid program");
    let mode = std::fs::metadata(&program).expect("the program").permissions().mode();
    assert_eq!(mode & 0o4000, 0o4000, "the file system keeps the setuid bit");
    let host = case.host();
    body(&mut case, host, &program);
    case.end_allowed_survivors();
    case.finish();
}

fn leave_one(case: &mut Case, host: &mut HostProcess, program: &Path) -> i32 {
    let grouped = if case.tier == GridTier::Group { " grouped" } else { "" };
    host.spawn(1, &format!("elevated {}{grouped}", program.display()));
    case.note(host);
    let found = case.tagged_processes();
    let elevated = found.iter().find(|found| found.cmdline.contains("become-root"));
    elevated.unwrap_or_else(|| panic!("no elevated child among {found:#?}")).pid
}

fn named_and_left(case: &mut Case, mut host: HostProcess, program: &Path) {
    let pid = leave_one(case, &mut host, program);
    let began = Instant::now();
    let told = host.ask(&format!("wait {}", host.workers[0].id)).expect("wait");
    assert_eq!(told.get("code").map(String::as_str), Some("5"), "{told:?}");
    let event = host.ask("await-event Unkillable").expect("the event");
    assert!(event["event"].contains(&pid.to_string()), "{event:?} names {pid}");
    // Other workers are not delayed.
    host.spawn(1, "stand");
    let told = host.ask("stop 100").expect("stop");
    assert!(told["survivors"].contains(&pid.to_string()), "{told:?} names {pid}");
    assert!(began.elapsed() < IN_TIME, "it took {:?}", began.elapsed());
    host.say("return");
    host.wait();
    case.custody_must_be_gone(Deadline::after(IN_TIME));
}

fn the_host_is_killed(case: &mut Case, mut host: HostProcess, program: &Path) {
    leave_one(case, &mut host, program);
    host.spawn(1, "stand");
    host.kill();
    case.custody_must_be_gone(Deadline::after(IN_TIME));
    let left = case.tagged_processes();
    assert_eq!(left.len(), 1, "only the elevated child is left: {left:#?}");
}

/// The keeper inherits the child, and may not signal it either.
fn its_shim_is_killed(case: &mut Case, mut host: HostProcess, program: &Path) {
    let pid = leave_one(case, &mut host, program);
    let shim = snakepit_proving::ObservedProcess::open(host.workers[0].shim).expect("pidfd_open");
    if let Some(shim) = shim {
        shim.end();
    }
    let began = Instant::now();
    host.ask(&format!("wait {}", host.workers[0].id)).expect("wait");
    let event = host.ask("await-event Unkillable").expect("the event");
    assert!(event["event"].contains(&pid.to_string()), "{event:?} names {pid}");
    assert!(began.elapsed() < IN_TIME, "it took {:?}", began.elapsed());
    host.spawn(1, "stand");
    host.ask("stop").expect("stop");
    host.say("return");
    host.wait();
    case.custody_must_be_gone(Deadline::after(IN_TIME));
}
