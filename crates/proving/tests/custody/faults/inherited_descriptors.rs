//! A worker that gets a copy of every descriptor of the host, including its connections to the keeper, and a worker
//! that gets none and so must have none.

use std::fs;

use snakepit_proving::Case;

super::each_tier!(every_descriptor, one_descriptor_at_every_number, no_descriptor);

fn every_descriptor(case: &mut Case) {
    let mut host = case.host_with(2, "family");
    let told = host.ask("spawn-with-everything family").expect("spawn with every descriptor");
    assert!(told["handed"].parse::<usize>().expect("a count") > 4, "{told:?}");
    host.announced(&told);
    case.note(&host);
    case.must_be_populated(9);
    host.kill();
    case.verdict();
}

/// The caller may choose any number, because keeper, shim and gate no longer need it.
fn one_descriptor_at_every_number(case: &mut Case) {
    let mut host = case.host();
    for number in 4..64 {
        let told = host.ask(&format!("spawn-with-one-at {number} stand")).expect("spawn");
        host.announced(&told);
    }
    case.note(&host);
    case.must_be_populated(60);
    host.kill();
    case.verdict();
}

fn no_descriptor(case: &mut Case) {
    let mut host = case.host_with(2, "stand");
    let list = case.dir().join("descriptors");
    host.spawn(1, &format!("descriptors {}", list.display()));
    let list = fs::read_to_string(list).expect("the worker's list");
    let mut numbers: Vec<&str> = list.lines().filter_map(|line| line.split(' ').next()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, ["0", "1", "2", "3"], "{list}");
    host.kill();
    case.verdict();
}
