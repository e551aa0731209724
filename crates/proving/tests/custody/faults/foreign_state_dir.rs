//! A state directory that another user owns or may write to: refused or safe.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use snakepit_proving::{Case, HostReply};

super::each_tier!(owned_by_another_user, with_runs_of_another_user, writable_by_everybody);

const NOBODY: u32 = 65534;

fn owned_by_another_user(case: &mut Case) {
    if !snakepit_proving::is_root() {
        return super::unproven("only root can change the owner of a directory");
    }
    fs::create_dir(case.state()).expect("make the directory");
    chown(case.state(), Some(NOBODY), Some(NOBODY)).expect("chown");
    must_be_refused_or_safe(case);
}

fn with_runs_of_another_user(case: &mut Case) {
    if !snakepit_proving::is_root() {
        return super::unproven("only root can change the owner of a directory");
    }
    let runs = case.state().join("runs");
    fs::create_dir_all(&runs).expect("make the directory");
    fs::set_permissions(case.state(), Permissions::from_mode(0o700)).expect("chmod");
    chown(&runs, Some(NOBODY), Some(NOBODY)).expect("chown");
    must_be_refused_or_safe(case);
}

fn writable_by_everybody(case: &mut Case) {
    fs::create_dir(case.state()).expect("make the directory");
    fs::set_permissions(case.state(), Permissions::from_mode(0o777)).expect("chmod");
    must_be_refused_or_safe(case);
}

fn must_be_refused_or_safe(case: &mut Case) {
    let mut host = case.bare_host();
    let state = case.state();
    match host.try_open(case.tier, &state, &case.options) {
        HostReply::No(_, text) => assert!(text.contains("state"), "the error names the directory: {text}"),
        HostReply::Ok(told) => {
            case.note_run(&told["run"]);
            must_be_ours_alone(&state);
            must_be_ours_alone(&state.join("runs"));
            host.ask("stop").expect("stop");
        }
    }
    host.say("return");
    host.wait();
    case.verdict();
    fs::remove_dir_all(state).expect("remove the directory");
}

/// Asserts that no other user can put a run there for us to reap, or take ours away.
fn must_be_ours_alone(dir: &Path) {
    let meta = fs::metadata(dir).expect("the directory");
    let us = rustix::process::geteuid().as_raw();
    assert_eq!((meta.uid(), meta.mode() & 0o022), (us, 0), "{} is not safe", dir.display());
}
