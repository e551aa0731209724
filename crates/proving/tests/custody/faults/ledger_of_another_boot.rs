//! A ledger of another boot. Its pids mean nothing now, so no process gets a signal.

use snakepit_proving::{Case, ledger};

super::each_tier!(no_signal);

fn no_signal(case: &mut Case) {
    let before = orphans_of_a_dead_run(case, 2);
    let dir = case.run_dirs().remove(0);
    let mut bytes = ledger::read(&dir);
    ledger::move_to_another_boot(&mut bytes);
    ledger::write(&dir, &bytes);

    let told = case.cleanup().expect("the reaper");
    assert_eq!(told["killed"], "", "{told:?}");
    assert_eq!(case.tagged_processes().len(), before, "nobody was signalled: {told:?}");
    assert!(case.run_dirs().is_empty(), "the run is removed: {told:?}");
    case.end_allowed_survivors();
    remove_cgroups_of_the_forgotten(case);
}

/// Creates a dead run whose workers live on without marker, if the tier lets them. Returns how many there are.
pub(super) fn orphans_of_a_dead_run(case: &mut Case, count: usize) -> usize {
    let mut host = case.host_with(count, "orphan");
    case.must_be_populated(count);
    super::leave_a_dead_run(case, &mut host);
    if case.tier == snakepit_proving::GridTier::Namespace {
        // The kernel ends a namespace with its init, so no process is left to signal.
        assert!(case.tag().is_free_before(snakepit_proving::Deadline::patient()));
        return 0;
    }
    let left = case.tagged_processes();
    assert_eq!(left.len(), count, "the orphans live: {left:#?}");
    count
}

/// Removes the cgroup of a run that was removed without a signal. The cgroup belongs to no run any more.
pub(super) fn remove_cgroups_of_the_forgotten(case: &Case) {
    for cgroup in case.cgroups() {
        snakepit_proving::cgroup::remove_tree(cgroup);
    }
}
