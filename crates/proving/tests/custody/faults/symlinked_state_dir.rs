//! A symbolic link in place of the state directory, of its `runs`, or of a run. The target of the link keeps
//! everything.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::PathBuf;

use snakepit_proving::{Case, HostReply};

super::each_tier!(in_place_of_the_directory, in_place_of_the_runs, in_place_of_a_run);

/// A name that a run could have.
const RUN: &str = "0199a0b0c0d07000800000000000abcd";

fn in_place_of_the_directory(case: &mut Case) {
    let victim = victim(case);
    symlink(&victim, case.state()).expect("symlink");
    nothing_is_taken_from(case, &victim);
}

fn in_place_of_the_runs(case: &mut Case) {
    let victim = victim(case);
    make_private(&case.state());
    symlink(victim.join("runs"), case.state().join("runs")).expect("symlink");
    nothing_is_taken_from(case, &victim);
}

fn in_place_of_a_run(case: &mut Case) {
    let victim = victim(case);
    make_private(&case.state());
    make_private(&case.state().join("runs"));
    symlink(victim.join("runs").join(RUN), case.state().join("runs").join(RUN)).expect("symlink");
    nothing_is_taken_from(case, &victim);
    // The link may stay for a person to inspect, or be removed, as long as it is not followed.
    let _ = fs::remove_file(case.state().join("runs").join(RUN));
}

/// Creates another user's directory that looks like a state directory with one dead run.
fn victim(case: &Case) -> PathBuf {
    let victim = case.dir().join("victim");
    let run = victim.join("runs").join(RUN);
    fs::create_dir_all(&run).expect("make the victim");
    for name in ["ledger", "lock", "precious"] {
        fs::write(run.join(name), "precious").expect("fill the victim");
    }
    if snakepit_proving::is_root() {
        chown(&victim, Some(65534), Some(65534)).expect("chown");
    }
    victim
}

fn make_private(dir: &std::path::Path) {
    fs::create_dir(dir).expect("make a directory");
    fs::set_permissions(dir, Permissions::from_mode(0o700)).expect("chmod");
}

fn nothing_is_taken_from(case: &mut Case, victim: &std::path::Path) {
    let mut host = case.bare_host();
    match host.try_open(case.tier, &case.state(), &case.options) {
        HostReply::No(_, text) => assert!(text.contains("state"), "the error names the directory: {text}"),
        HostReply::Ok(told) => {
            case.note_run(&told["run"]);
            host.ask("stop").expect("stop");
        }
    }
    host.say("return");
    host.wait();
    case.verdict();
    for name in ["ledger", "lock", "precious"] {
        let file = victim.join("runs").join(RUN).join(name);
        assert_eq!(fs::read_to_string(&file).ok().as_deref(), Some("precious"), "{name} was touched");
    }
    if case.state().is_symlink() {
        fs::remove_file(case.state()).expect("remove the link");
    } else if case.state().join("runs").is_symlink() {
        fs::remove_file(case.state().join("runs")).expect("remove the link");
    }
}
