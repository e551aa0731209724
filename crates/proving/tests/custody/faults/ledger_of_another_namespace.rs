//! A ledger of another PID namespace. Its pids mean nothing here, so no process gets a signal.

use snakepit_proving::{Case, ledger};

super::each_tier!(no_signal);

fn no_signal(case: &mut Case) {
    let before = super::ledger_of_another_boot::orphans_of_a_dead_run(case, 2);
    let dir = case.run_dirs().remove(0);
    let original = ledger::read(&dir);
    let mut bytes = original.clone();
    ledger::move_to_another_pid_namespace(&mut bytes);
    ledger::write(&dir, &bytes);

    let told = case.cleanup().expect("the reaper");
    assert_eq!(told["killed"], "", "{told:?}");
    assert_eq!(case.tagged_processes().len(), before, "nobody was signalled: {told:?}");
    // A cleanup in that namespace may still clear the run. With its original ledger, the run is cleared here.
    if dir.exists() {
        ledger::write(&dir, &original);
        case.next_start();
        assert!(case.tag().is_free(), "survivors: {:#?}", case.tagged_processes());
    } else {
        case.end_allowed_survivors();
        super::ledger_of_another_boot::remove_cgroups_of_the_forgotten(case);
    }
}
