//! The host forks a copy of itself, which holds all its descriptors. The copy neither keeps the run alive nor stops it.

use snakepit_proving::{Case, ObservedProcess};

super::each_tier!(that_outlives_the_host, that_stops_what_it_believes_to_be_its_own);

fn that_outlives_the_host(case: &mut Case) {
    let mut host = case.host_with(3, "family");
    let copy = host.ask("fork-copy").expect("fork")["copy"].parse().expect("a pid");
    let copy = ObservedProcess::of(copy);
    case.must_be_populated(9);
    host.kill();
    case.verdict();
    // A run is dead when its host is dead, whatever locks the copy holds.
    case.next_start();
    assert!(case.run_dirs().is_empty(), "the copy keeps the run's directory");
    assert!(copy.is_alive(), "a copy is none of custody's business");
    copy.end();
}

fn that_stops_what_it_believes_to_be_its_own(case: &mut Case) {
    let mut host = case.host_with(3, "family");
    case.must_be_populated(9);
    host.ask("fork-and-drop").expect("fork");
    host.spawn(1, "family");
    case.note(&host);
    case.must_be_populated(12);
    assert_eq!(case.run_dirs().len(), 1, "the copy removed the run's directory");
    host.kill();
    case.verdict();
}
