//! `kill -9` of the host.

use std::fs;
use std::os::unix::fs::symlink;

use snakepit_proving::{Case, GridCell, GridTier, HostProcess};

super::each_tier!(with_one_worker, with_ten_workers, with_100_workers, with_500_workers);

fn with_one_worker(case: &mut Case) {
    kill(case, 1, "family", 3);
}

pub(super) fn with_ten_workers(case: &mut Case) {
    kill(case, 10, "family", 3);
}

fn with_100_workers(case: &mut Case) {
    kill(case, 100, "family", 3);
}

fn with_500_workers(case: &mut Case) {
    kill(case, 500, "stand", 1);
}

fn kill(case: &mut Case, count: usize, kind: &str, processes: usize) {
    let mut host = case.host_with(count, kind);
    case.must_be_populated(count * processes);
    host.kill();
    case.verdict();
}

/// The keeper sets its emptied directory aside, so that the end does not wait for the disk.
#[test]
fn a_killed_host_leaves_one_empty_directory_until_the_next_start() {
    let mut case = Case::new(&super::programs(), GridTier::Shim, GridCell::ZERO);
    let aside = case.state().join("runs/.old");
    let mut hosts = [case.host(), case.host()];
    hosts.iter_mut().for_each(HostProcess::kill);
    case.verdict();
    assert!(case.run_dirs().is_empty(), "both runs are gone by their names");
    assert_eq!(fs::read_dir(&aside).expect("what was set aside").count(), 0);
    assert!(snakepit_custody::ledger(&case.state()).expect("the ledger").is_empty());
    let told = case.cleanup().expect("the reaper");
    assert_eq!((told["runs"].as_str(), aside.exists()), ("0", false), "{told:?}");
    case.finish();
}

#[test]
fn a_link_in_place_of_the_set_aside_directory_is_not_followed() {
    let mut case = Case::new(&super::programs(), GridTier::Shim, GridCell::ZERO);
    let (aside, kept) = (case.state().join("runs/.old"), case.dir().join("victim/kept"));
    fs::create_dir_all(&kept).expect("a victim");
    let mut host = case.host();
    symlink(case.dir().join("victim"), &aside).expect("symlink");
    host.kill();
    case.verdict();
    assert!(
        case.run_dirs().is_empty() && aside.is_symlink(),
        "the place was taken; the run is gone all the same"
    );
    case.next_start();
    assert!(!aside.is_symlink() && kept.exists(), "the link is gone, and nothing but the link");
    case.finish();
}
