//! A worker in a frozen cgroup of version 2, where KILL reaches it.

use snakepit_proving::cgroup::TestCgroup;
use snakepit_proving::deadline::recheck;
use snakepit_proving::{Case, Deadline, HostProcess};

super::each_tier!(when_the_run_is_stopped, when_the_host_is_killed);

fn freeze(case: &mut Case) -> Option<(HostProcess, TestCgroup)> {
    let group = TestCgroup::below_ours("")?;
    let host = case.host_with(2, "stand");
    group.take(host.workers[0].pid);
    group.write("cgroup.freeze", "1");
    recheck(Deadline::patient(), "the freeze", || {
        group.read("cgroup.events").contains("frozen 1").then_some(())
    });
    Some((host, group))
}

fn when_the_run_is_stopped(case: &mut Case) {
    let Some((mut host, group)) = freeze(case) else {
        return super::unproven("no cgroup of version 2 that we may create");
    };
    let told = host.ask("stop 100").expect("stop");
    assert_eq!(told["survivors"], "", "{told:?}");
    case.workers_must_be_gone_already();
    host.say("return");
    host.wait();
    case.verdict();
    drop(group);
}

fn when_the_host_is_killed(case: &mut Case) {
    let Some((mut host, group)) = freeze(case) else {
        return super::unproven("no cgroup of version 2 that we may create");
    };
    host.kill();
    case.verdict();
    drop(group);
}
