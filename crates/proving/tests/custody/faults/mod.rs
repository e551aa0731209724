//! The faults and their shared code.

mod breeding;
mod changed_credentials;
mod copied_environment;
mod ctrl_backslash;
mod ctrl_c;
mod disk_full;
mod double_fork;
mod elevated_child;
mod errno_at_every_step;
mod errors_of_looking;
mod expected;
mod foreign_parent_dir;
mod foreign_proc;
mod foreign_state_dir;
mod forged_markers;
mod fork_bomb;
mod fork_chains;
mod forked_copy;
mod frozen_v1;
mod frozen_v2;
mod hang_up;
mod harness;
mod held_by_a_tracer;
mod ignored_signals;
mod inherited_descriptors;
mod kill_at_every_step;
mod kill_host;
mod kill_host_and_keeper;
mod kill_host_group;
mod kill_host_keeper_and_shims;
mod kill_keeper;
mod kill_spare;
mod ledger_bit_flipped;
mod ledger_damaged_anywhere;
mod ledger_of_another_boot;
mod ledger_of_another_namespace;
mod ledger_torn;
mod ledger_truncated;
mod left_children;
mod lost_keeper_unseen;
mod main_thread_exits;
mod many_starts;
mod normal_exit;
mod oom_host;
mod oom_worker;
mod own_namespace;
mod panic_abort;
mod panic_unwind;
mod pid_reuse;
mod process_exit;
mod read_only_state_dir;
mod refused_calls;
mod seized_shim;
mod shed_everything;
mod signalled_custody;
mod spawn_storm;
mod spawning_thread_exits;
mod stop_keeper_and_shims_then_kill_host;
mod stop_keeper_then_kill_host;
mod stop_races_exit;
mod stopped_workers;
mod subgroups;
mod symlinked_state_dir;
mod ten_thousand_spawns;
mod threaded_cgroup;
mod time_namespace;
mod two_reapers;
mod umask_zero;
mod unprivileged;
mod unprovable;
mod unseen_namespace;

use rustix::process::Signal;
use snakepit_proving::cgroup::TestCgroup;
use snakepit_proving::pidfd::hold_still;
use snakepit_proving::{Case, Deadline, GridTier, HostProcess, ObservedProcess, OpenAs, Programs, unproven};

/// Defines one test per tier for each of the named functions, which take the case.
macro_rules! each_tier {
    ($($body:ident),+ $(,)?) => { $(
        mod $body {
            use snakepit_proving::GridTier;

            #[test]
            fn namespace() {
                crate::faults::prove(module_path!(), GridTier::Namespace, super::$body);
            }

            #[test]
            fn auto() {
                crate::faults::prove(module_path!(), GridTier::Auto, super::$body);
            }

            #[test]
            fn shim() {
                crate::faults::prove(module_path!(), GridTier::Shim, super::$body);
            }

            #[test]
            fn group() {
                crate::faults::prove(module_path!(), GridTier::Group, super::$body);
            }
        }
    )+ };
}
use each_tier;

fn programs() -> Programs {
    Programs {
        host: env!("CARGO_BIN_EXE_proving-host").into(),
        hostile: env!("CARGO_BIN_EXE_proving-hostile").into(),
    }
}

/// Returns the fault, which is the name of the module's file: `grid::faults::<fault>::…`.
fn fault_of(module: &str) -> &str {
    module.split("::").nth(2).expect("a module below faults")
}

fn prove(module: &str, tier: GridTier, body: fn(&mut Case)) {
    prove_with(module, tier, OpenAs::default(), body);
}

fn prove_with(module: &str, tier: GridTier, options: OpenAs, body: fn(&mut Case)) {
    prove_as(fault_of(module), tier, tier, options, body);
}

/// Like [`prove_with`], with the column of another tier.
fn prove_as(fault: &str, tier: GridTier, column: GridTier, options: OpenAs, body: fn(&mut Case)) {
    if let Some(why) = tier.refusal(options.user) {
        return unproven(&why);
    }
    let mut cell = expected::cell(fault, column);
    let shim = expected::cell(fault, GridTier::Shim);
    if column == GridTier::Auto && cell != shim && TestCgroup::below_ours("").is_none() {
        unproven("what only the cgroup of `auto` holds: there is no cgroup of version 2 that we may create");
        cell = shim;
    }
    let mut case = Case::with(&programs(), tier, cell, options);
    body(&mut case);
    case.finish();
}

/// Kills host, keeper and all shims almost simultaneously, so that none sees another die.
fn kill_all_of_custody(host: &mut HostProcess) {
    for process in kill_all_of_custody_but_wait_for_none(host) {
        process.must_end("a killed part of custody");
    }
}

/// Like [`kill_all_of_custody`], and waits until no process of custody holds the run's lock. Such a process may have
/// been prepared for a future worker; it dies with its shim.
fn leave_a_dead_run(case: &Case, host: &mut HostProcess) {
    kill_all_of_custody(host);
    case.custody_must_be_gone(Deadline::patient());
}

/// Like [`kill_all_of_custody`], for a shim that cannot end yet because a process of its namespace cannot.
fn kill_all_of_custody_but_wait_for_none(host: &mut HostProcess) -> Vec<ObservedProcess> {
    let keeper = host.keeper_process();
    host.process().signal(Signal::STOP);
    hold_still([&keeper]);
    let shims = host.shims();
    // The keeper comes last: its end orphans the groups of the shims, and the kernel continues stopped processes in
    // orphaned groups.
    let all: Vec<ObservedProcess> = shims.into_iter().chain(std::iter::once(keeper)).collect();
    hold_still(&all);
    for process in &all {
        process.signal(Signal::KILL);
    }
    host.kill();
    all
}

/// Kills the workers' main processes, too. Only the ledger is left of them.
fn kill_everybody(host: &mut HostProcess) {
    let workers: Vec<ObservedProcess> = host
        .workers
        .iter()
        .filter_map(|worker| ObservedProcess::open(worker.pid).expect("pidfd_open"))
        .collect();
    kill_all_of_custody(host);
    workers.iter().for_each(ObservedProcess::end);
}
