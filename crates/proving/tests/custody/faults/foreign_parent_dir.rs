//! A state directory below a directory that another user owns or may write to. A user who can rename the state
//! directory could replace our keeper, so it is refused even if it is itself private.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use snakepit_proving::{Case, HostReply};

super::each_tier!(owned_by_another_user, writable_by_everybody, sticky);

const NOBODY: u32 = 65534;

fn owned_by_another_user(case: &mut Case) {
    if !snakepit_proving::is_root() {
        return super::unproven("only root can change the owner of a directory");
    }
    let home = home_of(case);
    chown(&home, Some(NOBODY), Some(NOBODY)).expect("chown");
    must_be_refused(case, &home, "65534");
}

fn writable_by_everybody(case: &mut Case) {
    let home = home_of(case);
    fs::set_permissions(&home, Permissions::from_mode(0o777)).expect("chmod");
    must_be_refused(case, &home, "chmod o-w");
}

/// A sticky directory like /tmp: others can create files beside ours, but cannot touch ours.
fn sticky(case: &mut Case) {
    let home = home_of(case);
    fs::set_permissions(&home, Permissions::from_mode(0o1777)).expect("chmod");
    let mut host = case.host_with(1, "stand");
    host.kill();
    case.verdict();
}

fn home_of(case: &Case) -> std::path::PathBuf {
    case.state().parent().expect("a directory above").to_owned()
}

fn must_be_refused(case: &mut Case, home: &Path, words: &str) {
    fs::create_dir(case.state()).expect("make the directory");
    fs::set_permissions(case.state(), Permissions::from_mode(0o700)).expect("chmod");
    let mut host = case.bare_host();
    match host.try_open(case.tier, &case.state(), &case.options) {
        HostReply::Ok(told) => panic!("a keeper was run from there: {told:?}"),
        HostReply::No(status, text) => {
            assert_eq!(status, 125);
            assert!(text.contains(words) && text.contains(&home.display().to_string()), "{text}");
        }
    }
    host.say("return");
    host.wait();
    assert_eq!(fs::read_dir(case.state()).expect("the directory").count(), 0, "something was put there");
    case.verdict();
    fs::remove_dir(case.state()).expect("remove the directory");
    chown(home, Some(rustix::process::geteuid().as_raw()), None).expect("chown");
    fs::set_permissions(home, Permissions::from_mode(0o700)).expect("chmod");
}
