//! A ledger whose last record is incomplete. The rest of it still counts.

use snakepit_proving::{Case, ledger};

super::each_tier!(torn_tail);

fn torn_tail(case: &mut Case) {
    for length in [1, 5, 100, 300, ledger::SLOT - 1] {
        super::ledger_of_another_boot::orphans_of_a_dead_run(case, 1);
        let dir = case.run_dirs().remove(0);
        let mut bytes = ledger::read(&dir);
        // The beginning of a record whose write was cut.
        let last = bytes[bytes.len() - ledger::SLOT..].to_vec();
        bytes.extend_from_slice(&last[..length]);
        ledger::write(&dir, &bytes);

        let entries = snakepit_custody::ledger(&case.state()).expect("the ledger");
        assert_eq!(entries.len(), 1, "{length}: {entries:#?}");
        assert_eq!(entries[0].processes.len(), 1, "{length}: no record is skipped: {entries:#?}");
        assert!(!entries[0].trouble.is_empty(), "{length}: the torn tail is reported");
        case.next_start();
        case.workers_must_be_gone_already();
        assert!(case.run_dirs().is_empty(), "{length}: the run is cleared");
        case.forget_runs();
    }
}
