//! The state directory is on a read-only file system or closed to us, or becomes so during a run. As long as nothing
//! can be recorded, nothing is started.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use snakepit_proving::immutable_paths::ImmutablePaths;
use snakepit_proving::private_mount::{self, make_read_only, mount_tmpfs, with_private_mounts};
use snakepit_proving::{Case, Deadline, GridTier, HostProcess, OpenAs};

super::each_tier!(read_only_file_system, while_the_run_is_open, when_the_run_ends);

fn read_only_file_system(case: &mut Case) {
    if let Some(why) = private_mount::refusal() {
        return super::unproven(&why);
    }
    with_private_mounts(|| {
        let home = case.dir().join("home");
        mount_tmpfs(&home, "size=64k,mode=755");
        make_read_only(&home);
        must_refuse(case);
    });
}

fn while_the_run_is_open(case: &mut Case) {
    let mut host = case.host_with(2, "stand");
    let Some(frozen) = freeze(case) else { return };
    let (_, text) = host.ask("spawn 1 stand").expect_refusal("spawn where nothing can be written");
    must_say_why(&text);
    assert_eq!(case.tagged_processes().len(), 2, "nothing runs unrecorded: {:#?}", case.tagged_processes());
    must_heal(case, &mut host, || drop(frozen));
}

fn when_the_run_ends(case: &mut Case) {
    let mut host = case.host_with(2, "family");
    let Some(frozen) = freeze(case) else { return };
    let told = host.ask("stop").expect("stop");
    assert_eq!((told["stopped"].as_str(), told["survivors"].as_str()), ("2", ""), "{told:?}");
    case.end_survivors_and_go_on();
    host.say("return");
    assert!(host.wait().success());
    case.custody_must_be_gone(Deadline::patient());
    let told = case.cleanup().words();
    assert!(
        told.contains("removed=0") && told.contains("cannot_remove_its_directory"),
        "what stays is reported: {told}"
    );
    drop(frozen);
    case.next_start();
    assert!(case.run_dirs().is_empty(), "with the disk healed, the next start clears the run");
}

/// Makes everything of the only run read-only.
fn freeze(case: &Case) -> Option<ImmutablePaths> {
    let frozen = snakepit_proving::is_root().then(|| ImmutablePaths::run(&case.run_dirs()[0])).flatten();
    if frozen.is_none() {
        super::unproven("this file system, or this user, cannot make an open file immutable");
    }
    frozen
}

fn must_say_why(refusal: &str) {
    assert!(refusal.contains("ledger") && refusal.contains("not permitted"), "what is wrong: {refusal}");
}

/// Asserts that a worker's end is still reported while the ledger cannot be written. Once the ledger can be written,
/// the end is recorded before the next worker.
pub(super) fn must_heal(case: &mut Case, host: &mut HostProcess, heal: impl FnOnce()) {
    let ended = host.workers[0].clone();
    host.ask(&format!("kill {}", ended.id)).expect("kill");
    host.ask(&format!("wait {}", ended.id)).expect("its end is told");
    host.ask("spawn 1 stand").expect_refusal("a spawn before that end is on record");
    heal();
    host.spawn(1, "stand");
    case.note(host);
    let mut found: Vec<i32> = case.tagged_processes().iter().map(|found| found.pid).collect();
    assert!(!found.contains(&ended.pid));
    found.sort_unstable();
    let runs = snakepit_custody::ledger(&case.state()).expect("the ledger");
    assert!(runs[0].trouble.is_empty(), "no half of a record is left: {runs:#?}");
    let mut recorded: Vec<i32> =
        runs[0].processes.iter().filter_map(|process| Some(process.pid?.as_raw())).collect();
    recorded.sort_unstable();
    assert_eq!(recorded, found, "who is on record, and who is there");
    host.kill();
    case.verdict();
}

#[test]
fn a_state_directory_that_cannot_be_written_is_an_error() {
    if !snakepit_proving::is_root() {
        return super::unproven("only root can become another user");
    }
    let options = OpenAs { user: Some(65534), ..OpenAs::default() };
    let cell = super::expected::cell("read_only_state_dir", GridTier::Shim);
    let mut case = Case::with(&super::programs(), GridTier::Shim, cell, options);
    let home = case.dir().join("home");
    fs::set_permissions(&home, fs::Permissions::from_mode(0o555)).expect("chmod");
    must_refuse(&mut case);
    case.finish();
}

fn must_refuse(case: &mut Case) {
    let mut host = case.bare_host();
    let reply = host.try_open(case.tier, &case.state(), &case.options);
    let (_, text) = reply.expect_refusal("open where nothing can be written");
    assert!(text.contains("state"), "the error names the directory: {text}");
    host.say("return");
    host.wait();
    case.verdict();
}
