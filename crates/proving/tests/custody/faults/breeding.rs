//! A fork bomb at the limit of processes whose children call setsid. Each killed process makes room for another, so
//! killing one by one never ends. The promise: nothing that a worker starts outlives it, including fork storms, and
//! `wait` returns.

use std::time::{Duration, Instant};

use snakepit_proving::cgroup::TestCgroup;
use snakepit_proving::deadline::recheck;
use snakepit_proving::{Case, Deadline, GridTier, HostProcess, HostReply, ObservedProcess, OpenAs};

use super::expected;

/// The maximum number of processes of the bomb.
const LIMIT: u64 = 200;
/// The time limit for custody, which needs a fraction of a second on a quiet machine.
const IN_TIME: Duration = Duration::from_secs(8);

/// Defines a test per tier that holds processes that leave the group, for each fault, under each kind of limit.
macro_rules! each_limit {
    ($($body:ident),+ $(,)?) => { $(
        mod $body {
            use snakepit_proving::GridTier;

            #[test]
            fn of_a_user_namespace() {
                super::as_somebody(GridTier::Namespace, super::$body);
            }

            #[test]
            fn of_a_user_auto() {
                super::as_somebody(GridTier::Auto, super::$body);
            }

            #[test]
            fn of_a_user_shim() {
                super::as_somebody(GridTier::Shim, super::$body);
            }

            #[test]
            fn of_a_cgroup_auto() {
                super::in_a_cgroup(GridTier::Auto, super::$body);
            }

            #[test]
            fn of_a_cgroup_shim() {
                super::in_a_cgroup(GridTier::Shim, super::$body);
            }
        }
    )+ };
}

each_limit!(
    when_the_host_is_killed,
    when_the_keeper_is_killed,
    when_its_shim_is_killed,
    when_the_worker_ends_and_leaves_it,
    when_the_run_is_stopped,
);

/// Runs the test as a separate user, because the limit counts all processes of a user. The user has no cgroup, so
/// `auto` is the shim tier.
fn as_somebody(tier: GridTier, body: fn(&mut Case, HostProcess)) {
    if !snakepit_proving::is_root() {
        return super::unproven("only root can become another user");
    }
    let user = Some(100_000 + std::process::id());
    let options = OpenAs { user, processes: Some(LIMIT), ..OpenAs::default() };
    let mut case = Case::with(&super::programs(), tier, expected::cell("breeding", tier), options);
    let host = case.host();
    body(&mut case, host);
    case.finish();
}

/// Runs the test as root, below a cgroup of version 1 that limits processes. `auto` also has a cgroup of version 2.
fn in_a_cgroup(tier: GridTier, body: fn(&mut Case, HostProcess)) {
    let Some(group) = snakepit_proving::is_root().then(|| TestCgroup::below_ours("pids")).flatten() else {
        return super::unproven("no cgroup with the controller `pids` that we may create");
    };
    group.write("pids.max", &LIMIT.to_string());
    let mut case = Case::new(&super::programs(), tier, expected::cell("breeding", tier));
    let mut host = case.bare_host();
    group.take(host.process().pid());
    case.open(&mut host);
    body(&mut case, host);
    case.finish();
    drop(group);
}

/// Starts a worker that is ready once a fork was refused. Then the bomb is as large as the limit allows.
fn breed(case: &mut Case, host: &mut HostProcess, how: &str) {
    host.spawn(1, &format!("breed {how}"));
    case.note(host);
}

fn must_be_gone_in_time(case: &Case) {
    let began = Instant::now();
    assert!(case.tag().is_free_before(Deadline::after(IN_TIME)), "{} survive", case.tagged_processes().len());
    eprintln!("gone after {:?}", began.elapsed());
}

/// Asserts that another worker can be started once the ended processes are reaped.
fn must_spawn_again(host: &mut HostProcess) {
    recheck(Deadline::patient(), "room for another worker", || match host.ask("spawn 1 stand") {
        HostReply::Ok(_) => Some(()),
        HostReply::No(_, text) => {
            assert!(text.contains("Resource temporarily unavailable"), "{text}");
            None
        }
    });
}

fn when_the_host_is_killed(case: &mut Case, mut host: HostProcess) {
    breed(case, &mut host, "stay");
    host.kill();
    must_be_gone_in_time(case);
    case.verdict();
}

fn when_the_keeper_is_killed(case: &mut Case, mut host: HostProcess) {
    breed(case, &mut host, "stay");
    host.keeper_process().end();
    must_be_gone_in_time(case);
    host.ask("await-event KeeperRegained").expect("another keeper");
    must_spawn_again(&mut host);
    host.ask("stop").expect("stop");
    host.say("return");
    host.wait();
    case.verdict();
}

/// The keeper ends what the shim leaves.
fn when_its_shim_is_killed(case: &mut Case, mut host: HostProcess) {
    breed(case, &mut host, "stay");
    ObservedProcess::of(host.workers[0].shim).end();
    must_be_gone_in_time(case);
    let told = host.ask(&format!("wait {}", host.workers[0].id)).expect("wait");
    assert_eq!(told.get("lost").map(String::as_str), Some("shim"), "{told:?}");
    must_spawn_again(&mut host);
    host.ask("stop").expect("stop");
    host.say("return");
    host.wait();
    case.verdict();
}

fn when_the_worker_ends_and_leaves_it(case: &mut Case, mut host: HostProcess) {
    breed(case, &mut host, "leave");
    let began = Instant::now();
    let told = host.ask(&format!("wait {}", host.workers[0].id)).expect("wait");
    assert!(began.elapsed() < IN_TIME, "wait took {:?}", began.elapsed());
    assert_eq!(told.get("code").map(String::as_str), Some("5"), "{told:?}");
    case.workers_must_be_gone_already();
    host.ask("stop").expect("stop");
    host.say("return");
    host.wait();
    case.verdict();
}

fn when_the_run_is_stopped(case: &mut Case, mut host: HostProcess) {
    breed(case, &mut host, "stay");
    let began = Instant::now();
    let told = host.ask("stop 100").expect("stop");
    assert!(began.elapsed() < IN_TIME, "stop took {:?}", began.elapsed());
    assert_eq!(told["survivors"], "", "{told:?}");
    case.workers_must_be_gone_already();
    host.say("return");
    host.wait();
    case.verdict();
}
