//! The kernel kills the host for its memory, inside a memory cgroup. Everything that it started ends, but its siblings
//! live on.

use std::os::unix::process::ExitStatusExt;

use snakepit_proving::Case;
use snakepit_proving::cgroup::TestCgroup;

super::each_tier!(out_of_memory);

/// Enough for the host, the keeper, shims and workers, but far less than the host will allocate.
pub(super) const LIMIT: u64 = 96 << 20;

fn out_of_memory(case: &mut Case) {
    let Some(memory) = TestCgroup::with_memory_limit(LIMIT) else {
        return super::unproven("no memory cgroup that we may create");
    };
    let mut host = case.bare_host();
    memory.take(host.process().pid());
    case.open(&mut host);
    host.spawn(3, "family");
    case.note(&host);
    case.must_be_populated(9);
    host.say("eat-memory");
    assert_eq!(host.wait().signal(), Some(libc::SIGKILL), "the kernel kills the host");
    case.verdict();
    case.end_allowed_survivors();
}
