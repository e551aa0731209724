//! `kill -9` of host, keeper and all shims at the same moment: no process is left to act until the next start.

use snakepit_proving::{AllowedSurvivors, Case};

super::each_tier!(with_marked_descendants, with_descendants_that_shed_the_marker);

pub(super) fn with_marked_descendants(case: &mut Case) {
    let mut host = case.host_with(3, "family");
    case.must_be_populated(9);
    super::kill_all_of_custody(&mut host);
    case.verdict();
    // All of these carry the marker, which the next start follows in every tier.
    assert!(case.tag().is_free(), "survivors: {:#?}", case.tagged_processes());
}

fn with_descendants_that_shed_the_marker(case: &mut Case) {
    let mut host = case.host_with(2, "shed");
    case.must_be_populated(8);
    super::kill_all_of_custody(&mut host);
    case.verdict();
    // Three per worker, and all of them if neither a namespace nor a cgroup finds them.
    let survivors = if case.cell.allowed == AllowedSurvivors::Nobody { 0 } else { 6 };
    assert_eq!(case.tagged_processes().len(), survivors, "survivors: {:#?}", case.tagged_processes());
}
