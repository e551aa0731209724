//! The harness can fail: without custody, its census finds every kind of escape, and it notices harm to a bystander. A
//! proof that could not fail would prove nothing.

use std::os::unix::fs::PermissionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use snakepit_proving::bystander::Bystander;
use snakepit_proving::deadline::recheck;
use snakepit_proving::{Case, Deadline, GridCell, GridTier, ObservedProcess, OpenAs, other_user};

/// Starts a hostile worker as a careless host would, with nothing that holds it.
fn without_custody(case: &Case, kind: &str, expected: usize) -> Child {
    let child = Command::new(case.hostile())
        .arg(kind)
        .arg(case.tag().path())
        .arg("-")
        .stdin(Stdio::null())
        .env("SNAKEPIT_RUN_ID", "none")
        .spawn()
        .expect("start a hostile worker");
    recheck(Deadline::patient(), "the hostile processes", || {
        (case.tagged_processes().len() >= expected).then_some(())
    });
    child
}

fn is_caught(case: &Case) -> bool {
    let judge = || case.workers_must_be_gone(Deadline::after(Duration::from_millis(300)));
    catch_unwind(AssertUnwindSafe(judge)).is_err()
}

fn escape_is_caught(kind: &str, processes: usize, survivors: usize) {
    let mut case = Case::new(&super::programs(), GridTier::Shim, GridCell::ZERO);
    assert!(!is_caught(&case), "there is no process yet");
    let mut child = without_custody(&case, kind, processes);
    child.kill().expect("kill the worker");
    child.wait().expect("wait for the worker");
    recheck(Deadline::patient(), "the survivors alone", || {
        (case.tagged_processes().len() == survivors).then_some(())
    });
    assert!(!case.tag().is_free());
    assert!(is_caught(&case), "{kind}: survivors were not noticed");
    case.end_allowed_survivors();
    assert!(!is_caught(&case), "the test can end them");
    case.finish();
}

#[test]
fn a_daemon_outside_custody_is_noticed() {
    escape_is_caught("daemon", 4, 3);
}

#[test]
fn a_daemon_without_environment_and_descriptors_is_noticed() {
    escape_is_caught("shed", 4, 3);
}

#[test]
fn a_surviving_child_in_the_group_is_noticed() {
    escape_is_caught("stopped", 2, 1);
}

#[test]
fn chains_that_breed_faster_than_a_list_is_read_are_caught() {
    let mut case = Case::new(&super::programs(), GridTier::Shim, GridCell::ZERO);
    let mut child = without_custody(&case, "chains", 2);
    child.kill().expect("kill the worker");
    child.wait().expect("wait for the worker");
    // No list is complete, but the lease is not granted while one link lives.
    for _ in 0..100 {
        assert!(!case.tag().is_free(), "the lease was granted while chains were alive");
        std::thread::yield_now();
    }
    case.end_allowed_survivors();
    case.finish();
}

#[test]
fn only_survivors_that_the_table_lists_are_accepted() {
    let mut case = Case::new(&super::programs(), GridTier::Group, GridCell::LEFT);
    let mut child = without_custody(&case, "stand", 1);
    let group = case.tagged_processes()[0].pgid;
    assert!(!is_caught(&case), "a process outside our groups is allowed");
    case.note_group(group);
    assert!(is_caught(&case), "a process in one of our groups is not");
    case.cell = GridCell::SHED_NEXT;
    assert!(is_caught(&case), "a process with the marker is not");
    child.kill().expect("kill the worker");
    child.wait().expect("wait for the worker");
    case.finish();
}

#[test]
fn a_missing_expected_survivor_is_noticed() {
    let mut case = Case::new(&super::programs(), GridTier::Group, GridCell::LEFT);
    let mut child = without_custody(&case, "daemon", 4);
    let main = child.id().cast_signed();
    recheck(Deadline::patient(), "three daemons and nobody between", || {
        (case.tagged_processes().len() == 4).then_some(())
    });
    let group = case.tagged_processes().iter().find(|found| found.pid == main).expect("the worker").pgid;
    case.note_group(group);
    case.must_be_populated(4);
    child.kill().expect("kill the worker");
    child.wait().expect("wait for the worker");
    assert!(!is_caught(&case), "the three that left survive");
    let daemon = case.tagged_processes()[0].pid;
    ObservedProcess::of(daemon).end();
    assert!(is_caught(&case), "one of them was killed");
    case.finish();
}

#[test]
fn harm_to_a_bystander_is_noticed() {
    let hostile = super::programs().hostile;
    let bystander = Bystander::plain(&hostile);
    bystander.must_be_untouched();
    bystander.process().signal(rustix::process::Signal::STOP);
    recheck(Deadline::patient(), "the notice of a stop", || {
        catch_unwind(AssertUnwindSafe(|| bystander.must_be_untouched())).is_err().then_some(())
    });
    bystander.process().end();
    assert!(catch_unwind(AssertUnwindSafe(|| bystander.must_be_untouched())).is_err());
}

#[test]
fn a_process_tagged_with_the_case_fails_its_end() {
    let case = Case::new(&super::programs(), GridTier::Shim, GridCell::ZERO);
    let mut child = Command::new(case.hostile())
        .arg("innocent")
        .current_dir("/")
        .env("PROVING_CASE", &case.words()[0])
        .stdin(Stdio::null())
        .spawn()
        .expect("start a process");
    let found = snakepit_proving::census::mentioning(&case.words());
    assert_eq!(found.iter().map(|found| found.pid).collect::<Vec<_>>(), [child.id().cast_signed()]);
    child.kill().expect("kill it");
    child.wait().expect("wait for it");
    case.finish();
}

/// A checkout may lie below a private home, and the tests run in it. A host of a user who may not enter it must still
/// work.
#[test]
fn a_host_of_another_user_does_not_need_the_directory_of_the_tests() {
    if let Some(why) = other_user::refusal() {
        return super::unproven(&why);
    }
    let private = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(private.path(), std::fs::Permissions::from_mode(0o700)).expect("chmod");
    let before = std::env::current_dir().expect("a directory");
    std::env::set_current_dir(private.path()).expect("enter it");
    let options = OpenAs { user: Some(other_user::NOBODY), ..OpenAs::default() };
    let mut case = Case::with(&super::programs(), GridTier::Shim, GridCell::ZERO, options);
    let mut host = case.host_with(1, "stand");
    case.must_be_populated(1);
    host.kill();
    case.verdict();
    case.finish();
    std::env::set_current_dir(before).expect("leave it");
}
