//! The system refuses at every step of a spawn: no descriptors, no processes, no memory. The spawn is
//! refused in turn, nothing is half-born, and the next one works.

use std::path::Path;

use snakepit_proving::{Case, Deadline, OpenAs, Reply};

super::each_tier!(no_descriptors, no_processes, no_memory);

fn no_descriptors(case: &mut Case) {
    at_every_step(case, libc::EMFILE);
}

fn no_processes(case: &mut Case) {
    at_every_step(case, libc::EAGAIN);
}

fn no_memory(case: &mut Case) {
    at_every_step(case, libc::ENOMEM);
}

fn at_every_step(case: &mut Case, errno: i32) {
    let mut refused = 0;
    for step in snakepit_custody::failpoint_steps() {
        case.options = OpenAs { failpoints: Some(format!("{step}@1=errno:{errno}")), ..OpenAs::default() };
        let mut host = case.host();
        match host.ask("spawn 1 stand") {
            Reply::Ok(told) => drop(host.announced(&told)),
            Reply::No(_, text) => {
                refused += 1;
                assert!(!text.is_empty(), "{step}: a refusal says why");
                let free = case.tag().is_free_before(Deadline::patient());
                assert!(free, "{step}: half-born: {:#?}", case.wearers());
                must_have_no_living_entry(&case.state(), step);
            }
        }
        let before = case.wearers().len();
        host.spawn(1, "stand");
        case.note(&host);
        assert_eq!(case.wearers().len(), before + 1, "{step}: the next spawn works");
        host.ask("stop").expect("stop");
        case.workers_must_be_gone_already();
        host.say("return");
        assert!(host.wait().success(), "{step}");
        case.custody_must_be_gone(Deadline::patient());
        case.forget_runs();
    }
    case.options = OpenAs::default();
    // What fails while a shim is only being prepared costs nobody anything: the next one serves.
    let steps = snakepit_custody::failpoint_steps().len();
    assert!(refused * 3 > steps, "only {refused} of {steps} steps refuse the spawn");
}

fn must_have_no_living_entry(state: &Path, step: &str) {
    let runs = snakepit_custody::ledger(state).expect("the ledger");
    for process in runs.iter().flat_map(|run| &run.processes) {
        assert!(!process.alive, "{step}: {process:?}");
    }
}
