//! The texts that errors and reports of custody carry: each comes from the code that a wrong command, a broken record or
//! a refusal of the system meets.

use std::path::Path;
use std::time::Duration;

use snakepit_error_texts::{ErrorTexts, every_text};

use crate::ledger::contents::LedgerContents;
use crate::ledger::record::{RecordDamage, SLOT};
use crate::link::wire::SpawnStage;
use crate::process::cgroup::{self, Cgroup};
use crate::process::pid_scope::PidScope;
use crate::reap::reaper::{self, OtherReapers};
use crate::spawn::prepare::prepare;
use crate::state::StateDir;
use crate::{
    Command, CustodyOptions, ExitStatus, LetBe, LetBeReason, Pid, RunId, SpawnError, Survivor, WorkerId,
    doctor::tiers,
};

const RUN: &str = "0199f2a46c0070008000000000000001";

fn run() -> RunId {
    RUN.parse().expect("an id")
}

fn worker() -> WorkerId {
    WorkerId::new("numbers-1").expect("an id")
}

#[test]
fn every_step_of_a_spawn_that_can_fail_has_its_text() {
    let mut texts = ErrorTexts::new();
    for stage in (1..).map_while(SpawnStage::from_byte) {
        let (cwd, dir) = (Path::new("/srv/app"), Path::new("/home/ann/.local/state/snakepit/runs/1"));
        texts.add(&format!("{stage:?}"), &SpawnError::from_stage(stage, libc::EPERM, "python3", cwd, dir));
    }
    insta::assert_snapshot!(texts);
}

#[test]
fn every_command_that_cannot_run_is_refused_with_its_reason() {
    let mut texts = ErrorTexts::new();
    let mut refused = |command: Command| {
        let error = prepare(command, 1, &worker(), run()).map(drop).expect_err("a wrong command");
        texts.add("", &error);
    };
    let null = || std::fs::File::open("/dev/null").expect("a file");
    refused(Command::new(""));
    refused(Command::new("pyhton3\0"));
    refused(Command::new("true").arg("a\0b"));
    refused(Command::new("true").current_dir("/srv\0"));
    refused(Command::new("true").env("A\0", "1"));
    refused(Command::new("true").env("A", "1\0"));
    refused(Command::new("true").env("A=B", "1"));
    refused(Command::new("true").env("", "1"));
    refused(Command::new("true").fd(null(), 2));
    refused(Command::new("true").fd(null(), 3).fd(null(), 3));
    refused((0..300).fold(Command::new("true"), |command, fd| command.fd(null(), 3 + fd)));
    insta::assert_snapshot!(texts);
}

#[test]
fn every_reason_against_a_tier_or_a_cgroup_is_in_words() {
    let mut texts = ErrorTexts::new();
    for line in ["1 6 1", "1 7 1", "0 8 28"] {
        texts.add_text("Tier", &tiers::explain(line).expect("a reason"));
    }
    let mounted = "31 24 0:27 /sub /sys/fs/cgroup rw - cgroup2 cgroup2 rw";
    for (mounts, own) in [("", "0::/"), (mounted, "1:memory:/"), (mounted, "0::/other")] {
        texts.add_text("Place", &cgroup::place_in(mounts, own).expect_err("no place"));
    }
    let dir = tempfile::tempdir().expect("a directory");
    let shown =
        |text: &dyn ToString| text.to_string().replace(&dir.path().display().to_string(), "/sys/fs/cgroup");
    let long = dir.path().join("a".repeat(1000));
    for place in [dir.path().join("none"), long, dir.path().to_owned()] {
        let error = Cgroup::create_below(&place, run(), 1).expect_err("no cgroup");
        texts.add_text("Create", &shown(&error).replace(&"a".repeat(1000), "a…"));
    }
    let path = dir.path().join(format!("snakepit-{RUN}"));
    let hidden = format!("/nowhere/snakepit-{RUN}");
    texts.add("Recorded", &Cgroup::recorded(hidden.as_bytes(), run()).expect_err("not visible"));
    std::fs::create_dir(&path).expect("a directory");
    let file = |name: &str, text: &str| std::fs::write(path.join(name), text).expect("a file");
    file("cgroup.procs", "");
    file("cgroup.type", "threaded");
    file("cgroup.kill", "");
    let recorded = Cgroup::recorded(path.as_os_str().as_encoded_bytes(), run());
    let cgroup = recorded.expect("visible").expect("a cgroup");
    texts.add_text("Type", &shown(&cgroup.takes_processes().expect_err("threaded")));
    for events in ["populated 1", "populated 0"] {
        file("cgroup.events", events);
        texts.add("End", &cgroup.end(Duration::from_millis(1)).expect_err("not removed"));
    }
    insta::assert_snapshot!(texts);
}

#[test]
fn every_process_that_ended_or_is_left_is_named_with_the_reason() {
    let mut texts = ErrorTexts::new();
    let pid = |number| Pid::new(number).expect("a pid");
    every_text!(texts, LetBeReason {
        ForeignParent => [LetBeReason::ForeignParent(pid(99))],
        GroupWithoutLeader => [LetBeReason::GroupWithoutLeader(4710)],
        Unreadable => [LetBeReason::Unreadable],
    });
    every_text!(texts, ExitStatus {
        Code => [ExitStatus::Code(1)],
        Signal => [ExitStatus::Signal(libc::SIGSEGV)],
        Lost => [ExitStatus::Lost],
        ShimKilled => [ExitStatus::ShimKilled],
    });
    for reason in [LetBeReason::ForeignParent(pid(99)), LetBeReason::Unreadable] {
        texts.add_text("LetBe", &LetBe { pid: pid(4711), command: "python3 train.py".into(), reason });
    }
    for worker in [None, Some(worker())] {
        let survivor = Survivor { worker, pid: pid(4711), state: 'D', command: "python3 train.py".into() };
        texts.add_text("Survivor", &survivor);
    }
    insta::assert_snapshot!(texts);
}

#[test]
fn every_damage_of_a_ledger_is_described() {
    let mut texts = ErrorTexts::new();
    let damaged = [0xFF; SLOT];
    let many = [damaged; 9].concat();
    for bytes in [&b""[..], &damaged, &many, b"torn"] {
        texts.add_text("", &LedgerContents::parse(bytes).troubles().join("; "));
    }
    let newer = LedgerContents { damaged: vec![(3, RecordDamage::Unknown)], ..LedgerContents::default() };
    texts.add_text("", &newer.troubles().join("; "));
    insta::assert_snapshot!(texts);
}

#[test]
fn every_run_that_a_cleanup_cannot_judge_is_reported() -> Result<(), Box<dyn std::error::Error>> {
    let mut texts = ErrorTexts::new();
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("state");
    let state = StateDir::open(&path)?;
    let scope = PidScope::here()?;
    std::fs::create_dir(path.join("runs/notes"))?;
    let run = path.join(format!("runs/{RUN}"));
    std::fs::create_dir(&run)?;
    std::fs::write(run.join("ledger"), "torn")?;
    let report = reaper::reap(&state, scope, &CustodyOptions::default(), None, OtherReapers::LeaveTo)?;
    for run in report.runs {
        let trouble = run.trouble.unwrap_or_default().replace(&path.display().to_string(), "/state");
        texts.add_text(&run.run, &trouble);
    }
    insta::assert_snapshot!(texts);
    Ok(())
}
