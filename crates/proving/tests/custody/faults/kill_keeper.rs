//! `kill -9` of the keeper: the workers die with it, and the host gets an event and a new keeper, and continues.

use snakepit_proving::{Case, Deadline};

super::each_tier!(kill_keeper);

pub(super) fn kill_keeper(case: &mut Case) {
    let mut host = case.host_with(3, "family");
    case.must_be_populated(9);
    let first = host.keeper_process();
    first.end();
    // All of these carry the marker, which the host's own sweep follows in every tier.
    assert!(case.tag().is_free_before(Deadline::patient()), "survivors: {:#?}", case.tagged_processes());
    let id = host.workers[0].id.clone();
    let told = host.ask(&format!("wait {id}")).expect("wait for a worker that died with its keeper");
    assert!(told.contains_key("lost") || told.contains_key("signal"), "{told:?}");
    host.ask("await-event KeeperLost").expect("the host is told");
    host.ask("await-event KeeperRegained").expect("the host gets a new keeper");

    host.keeper = host.ask("keeper").expect("a keeper")["keeper"].parse().ok();
    assert_ne!(host.keeper, Some(first.pid()));
    host.spawn(2, "family");
    case.note(&host);
    case.must_be_populated(6);
    host.kill();
    case.verdict();
}
