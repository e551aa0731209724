//! The state directory is on a read-only file system, or closed to us: nothing can be recorded, so
//! nothing is started.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use snakepit_proving::private_mount::{make_read_only, mount_tmpfs, with_private_mounts};
use snakepit_proving::{Case, GridTier, OpenAs};

super::each_tier!(read_only_file_system);

fn read_only_file_system(case: &mut Case) {
    if !snakepit_proving::is_root() {
        return super::unproven("only root can mount a file system");
    }
    with_private_mounts(|| {
        let home = case.dir().join("home");
        mount_tmpfs(&home, "size=64k,mode=755");
        make_read_only(&home);
        must_refuse(case);
    });
}

#[test]
fn a_directory_that_is_closed_to_us() {
    if !snakepit_proving::is_root() {
        return super::unproven("only root can become somebody else");
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
