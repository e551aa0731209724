//! A ledger that ends too early, at every record and in the middle of each. Processes with the marker are found without
//! it, no other process is harmed, and the unreadable part is reported.

use snakepit_proving::{Case, ledger};

super::each_tier!(cut_anywhere);

fn cut_anywhere(case: &mut Case) {
    let slots = dead_run(case).len() / ledger::SLOT;
    case.next_start();
    for cut in (0..slots).flat_map(|slot| [slot * ledger::SLOT, slot * ledger::SLOT + 77]) {
        let bytes = dead_run(case);
        ledger::write(&case.run_dirs()[0], &bytes[..cut]);
        let entries = snakepit_custody::ledger(&case.state()).expect("the ledger");
        assert_eq!(entries.len(), 1, "cut at {cut}: {entries:#?}");
        // A cut between two records looks like a ledger without further records, unless the first record is missing.
        let shows = cut == 0 || !cut.is_multiple_of(ledger::SLOT);
        assert!(!shows || !entries[0].trouble.is_empty(), "cut at {cut}: not reported: {entries:#?}");

        let told = case.cleanup().words();
        assert!(
            case.tag().is_free(),
            "cut at {cut}: the marker was not followed: {told}: {:#?}",
            case.tagged_processes()
        );
        super::ledger_bit_flipped::remove_what_was_left_for_a_person(case);
        case.forget_runs();
    }
}

fn dead_run(case: &mut Case) -> Vec<u8> {
    let mut host = case.host_with(1, "heir");
    super::leave_a_dead_run(case, &mut host);
    ledger::read(&case.run_dirs()[0])
}
