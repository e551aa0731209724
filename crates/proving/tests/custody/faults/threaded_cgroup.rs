//! The host is in a threaded cgroup. No cgroup that takes processes can be created below it, so `auto` works without
//! one. The promise: whatever can work, works.

use snakepit_proving::cgroup::TestCgroup;
use snakepit_proving::{Case, GridTier};

use super::expected;

#[test]
fn auto_goes_without() {
    let Some(group) = snakepit_proving::is_root().then(|| TestCgroup::below_ours("")).flatten() else {
        return super::unproven("no cgroup of version 2 that we may create");
    };
    let threads = group.dir().join("threads");
    std::fs::create_dir(&threads).expect("make a cgroup");
    std::fs::write(threads.join("cgroup.type"), "threaded").expect("make it threaded");
    // A process is in the common domain of its threads. Only the shim tier is left.
    let mut case =
        Case::new(&super::programs(), GridTier::Auto, expected::cell("threaded_cgroup", GridTier::Auto));
    let mut host = case.bare_host();
    group.take(host.process().pid());
    let pid = host.process().pid();
    for thread in std::fs::read_dir(format!("/proc/{pid}/task")).expect("threads") {
        let thread = thread.expect("a thread").file_name().into_string().expect("a number");
        std::fs::write(threads.join("cgroup.threads"), thread).expect("move a thread");
    }
    case.open(&mut host);
    assert_eq!(host.cgroup, None, "a cgroup that takes no process is not used");
    host.spawn(2, "family");
    case.must_be_populated(6);
    host.kill();
    case.verdict();
    case.finish();
    drop(group);
}
