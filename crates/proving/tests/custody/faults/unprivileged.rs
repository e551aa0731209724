//! The basic faults with an unprivileged host.

use snakepit_proving::cgroup::TestCgroup;
use snakepit_proving::other_user::{self, NOBODY};
use snakepit_proving::{Case, GridTier, OpenAs, private_mount};

use super::expected;

/// Defines one test per tier for each fault, with privileges dropped.
macro_rules! as_nobody {
    ($($fault:ident: $body:ident),+ $(,)?) => { $(
        mod $fault {
            use snakepit_proving::GridTier;

            #[test]
            fn namespace() {
                super::prove(stringify!($fault), GridTier::Namespace, crate::faults::$fault::$body);
            }

            #[test]
            fn auto() {
                super::prove(stringify!($fault), GridTier::Auto, crate::faults::$fault::$body);
            }

            #[test]
            fn shim() {
                super::prove(stringify!($fault), GridTier::Shim, crate::faults::$fault::$body);
            }

            #[test]
            fn group() {
                super::prove(stringify!($fault), GridTier::Group, crate::faults::$fault::$body);
            }
        }
    )+ };
}

as_nobody!(
    normal_exit: main_returns_after_a_stop,
    process_exit: process_exit,
    panic_unwind: panic_that_unwinds,
    panic_abort: panic_that_aborts,
    kill_host: with_ten_workers,
    kill_keeper: kill_keeper,
    kill_host_and_keeper: host_and_keeper,
    kill_host_keeper_and_shims: with_marked_descendants,
    stop_keeper_then_kill_host: stopped_keeper,
    stop_keeper_and_shims_then_kill_host: never_continued,
    stopped_workers: then_the_run_is_stopped,
    ignored_signals: when_the_run_is_stopped,
    double_fork: when_the_host_is_killed,
    shed_everything: when_the_host_is_killed,
    fork_chains: during_a_stop,
    left_children: gone_before_wait_returns,
);

/// `hidepid=1`, which systemd calls `ProtectProc=noaccess`: the processes above the host cannot be read.
#[test]
fn with_hidepid_the_processes_of_a_dead_host_are_still_ended() {
    if let Some(why) = private_mount::refusal() {
        return super::unproven(&why);
    }
    private_mount::with_private_mounts(|| {
        private_mount::mount_proc("hidepid=1");
        let options = OpenAs { user: Some(NOBODY), ..OpenAs::default() };
        let mut case =
            Case::with(&super::programs(), GridTier::Shim, snakepit_proving::GridCell::ZERO, options);
        let mut host = case.host_with(2, "family");
        host.kill();
        case.verdict();
        case.finish();
    });
}

fn prove(fault: &str, tier: GridTier, body: fn(&mut Case)) {
    if !snakepit_proving::is_root() {
        return super::unproven("the whole grid runs as an unprivileged user already");
    }
    if let Some(why) = other_user::refusal() {
        return super::unproven(&why);
    }
    // Without a cgroup of its own, `auto` is the shim tier and promises the same.
    let column = if tier == GridTier::Auto { GridTier::Shim } else { tier };
    let options = OpenAs { user: Some(NOBODY), ..OpenAs::default() };
    super::prove_as(fault, tier, column, options, body);
}

/// For `auto`, a cgroup that was delegated to the user works like root's own.
#[test]
fn a_delegated_cgroup_reveals_processes_without_the_marker() {
    if let Some(why) = other_user::refusal() {
        return super::unproven(&why);
    }
    let Some(group) = TestCgroup::below_ours("") else {
        return super::unproven("no cgroup of version 2 that could be delegated");
    };
    group.delegate_to(NOBODY);
    let cell = expected::cell("kill_host_keeper_and_shims", GridTier::Auto);
    let options = OpenAs { user: Some(NOBODY), ..OpenAs::default() };
    let mut case = Case::with(&super::programs(), GridTier::Auto, cell, options);
    let mut host = case.bare_host();
    group.take(host.process().pid());
    case.open(&mut host);
    assert!(host.cgroup.is_some(), "the delegated cgroup is used");
    host.spawn(2, "shed");
    case.must_be_populated(8);
    super::kill_all_of_custody(&mut host);
    case.verdict();
    case.finish();
}
