//! At every step of a spawn, one process dies: the host, the keeper, the shim, or the process that takes the step.

use std::time::Duration;

use snakepit_proving::deadline::{let_pass, recheck};
use snakepit_proving::{Case, Deadline, GridTier, HostProcess, HostReply, OpenAs, SpawnFault};

super::each_tier!(host_dies, keeper_dies, shim_dies, whoever_takes_the_step_dies);

/// How long the process pauses at the step, and when within that time the kill comes.
const PAUSE_MILLIS: u64 = 150;
const KILL_AFTER: Duration = Duration::from_millis(50);

#[test]
fn host_dies_while_a_process_of_the_namespace_stands_at_the_step() {
    from_outside(Victim::Host);
}

#[test]
fn keeper_dies_while_a_process_of_the_namespace_stands_at_the_step() {
    from_outside(Victim::Keeper);
}

#[derive(Clone, Copy)]
enum Victim {
    Host,
    Keeper,
}

fn from_outside(victim: Victim) {
    let cell = super::expected::cell("kill_at_every_step", GridTier::Namespace);
    let mut case = Case::new(&super::programs(), GridTier::Namespace, cell);
    for step in snakepit_custody::failpoint_steps().iter().filter(|step| !step.starts_with("keeper.")) {
        // Both the first spawn and the one that is prepared meanwhile pause.
        case.options =
            OpenAs { failpoints: Some(format!("{step}=pause:{PAUSE_MILLIS}")), ..OpenAs::default() };
        let mut host = case.host();
        let keeper = host.keeper_process();
        host.say("spawn 1 stand");
        // The test needs this moment: the process is at the step, but no event reports it.
        let_pass(KILL_AFTER);
        match victim {
            Victim::Host => {}
            Victim::Keeper => {
                keeper.end();
                // The answer to the spawn that was cut short.
                host.hear();
                the_host_goes_on(&mut case, &mut host, step);
            }
        }
        host.kill();
        case.workers_must_be_gone(Deadline::patient());
        case.custody_must_be_gone(Deadline::patient());
        case.forget_runs();
    }
    case.options = OpenAs::default();
    case.finish();
}

fn host_dies(case: &mut Case) {
    at_every_step(case, "kill-host");
}

fn keeper_dies(case: &mut Case) {
    at_every_step(case, "kill-keeper");
}

fn shim_dies(case: &mut Case) {
    at_every_step(case, "kill-shim");
}

fn whoever_takes_the_step_dies(case: &mut Case) {
    at_every_step(case, "kill-self");
}

fn at_every_step(case: &mut Case, action: &str) {
    let steps = snakepit_custody::failpoint_steps();
    assert!(steps.len() > 10, "{steps:?}");
    for step in steps {
        let fault = SpawnFault::at(step, 2, action, case.dir());
        case.options = fault.options();
        let mut host = case.host();
        // The keeper prepares the second worker while it serves the first, so the fault may come in either.
        let keeper = host.keeper_process();
        let heard = (0..2).map_while(|_| host.try_ask("spawn 1 stand")).count();
        // A step that is never taken would prove nothing.
        fault.must_have_come();
        // From inside a PID namespace, processes outside cannot be killed. There the step fails instead, and another
        // test kills from outside.
        let reaches = case.tier != GridTier::Namespace || step.starts_with("keeper.");
        match action {
            _ if !reaches => {}
            "kill-host" => host.process().must_end(&format!("the host, killed at {step}")),
            "kill-keeper" => keeper.must_end(&format!("the keeper, killed at {step}")),
            _ => {}
        }
        if heard == 2 {
            the_host_goes_on(case, &mut host, step);
        }
        host.kill();
        case.workers_must_be_gone(Deadline::patient());
        case.custody_must_be_gone(Deadline::patient());
        case.options = OpenAs::default();
        case.next_start();
        assert!(case.run_dirs().is_empty(), "{step}: run directories are left");
        case.forget_runs();
    }
}

/// Asserts that a host that survived a fault inside a spawn can spawn again, if necessary with a new keeper.
fn the_host_goes_on(case: &mut Case, host: &mut HostProcess, step: &str) {
    recheck(Deadline::patient(), &format!("a spawn after a fault at {step}"), || {
        match host.try_ask("spawn 1 stand") {
            Some(HostReply::Ok(told)) => {
                host.announced(&told);
                Some(())
            }
            // Refused while the keeper is being replaced.
            Some(HostReply::No(..)) => None,
            // The fault killed the host after it had answered.
            None => Some(()),
        }
    });
    case.note(host);
}
