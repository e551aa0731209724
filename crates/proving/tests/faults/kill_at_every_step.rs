//! Somebody dies at every step of a spawn: the host, the keeper, the shim, or whoever takes the step.

use snakepit_proving::{Case, Deadline, HostProcess, OpenAs, Process, Reply};

super::each_tier!(host_dies, keeper_dies, shim_dies, whoever_takes_the_step_dies);

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
        case.options = OpenAs { failpoints: Some(format!("{step}@2={action}")), ..OpenAs::default() };
        let mut host = case.host_with(1, "stand");
        let keeper = host.keeper_process();
        host.say("spawn 1 stand");
        let heard = host.hear();
        match heard {
            // The spawn that was hit may have got through; it is over all the same if the host is.
            Some(line) => the_host_goes_on(case, host, &keeper, step, &line),
            None => _ = host.wait(),
        }
        case.workers_must_be_gone(Deadline::patient());
        case.custody_must_be_gone(Deadline::patient());
        case.options = OpenAs::default();
        case.next_start();
        assert!(case.run_dirs().is_empty(), "{step}: run directories are left");
        case.forget_runs();
    }
}

/// A host that survived a fault inside a spawn is told, and can spawn again.
fn the_host_goes_on(case: &mut Case, mut host: HostProcess, keeper: &Process, step: &str, line: &str) {
    if !host.process().is_alive() {
        host.wait();
        return;
    }
    if !keeper.is_alive() {
        host.ask("await-event snakepit.keeper.regained").expect("a new keeper");
    }
    match host.ask("spawn 1 stand") {
        Reply::Ok(told) => drop(host.announced(&told)),
        Reply::No(status, text) if host.process().is_alive() => {
            panic!("{step}: the spawn after the fault ({line:?}) was refused with {status}: {text}")
        }
        Reply::No(..) => {}
    }
    case.note(&host);
    host.kill();
}
