//! A ledger with one bit changed, at every place: no wrong kill, no other record skipped, a clear report.

use std::fs;

use snakepit_proving::{Case, is_quick, ledger};

super::each_tier!(read_with_every_bit_flipped, reaped_with_a_byte_flipped);

/// Reads only: flips every bit while the orphans are alive.
fn read_with_every_bit_flipped(case: &mut Case) {
    let living = super::ledger_of_another_boot::orphans_of_a_dead_run(case, 2);
    let dir = case.run_dirs().remove(0);
    let good = ledger::read(&dir);
    let entries = snakepit_custody::ledger(&case.state()).expect("the ledger");
    assert!(entries[0].trouble.is_empty(), "the ledger is whole before: {entries:#?}");
    assert_eq!(entries[0].processes.iter().filter(|process| process.alive).count(), living);

    let stride = if is_quick() { 61 } else { 7 };
    for bit in (0..good.len() * 8).step_by(stride) {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        ledger::write(&dir, &bad);
        let entries = snakepit_custody::ledger(&case.state()).expect("the ledger");
        assert_eq!(entries.len(), 1, "bit {bit}");
        assert!(!entries[0].trouble.is_empty(), "bit {bit}: not reported: {entries:#?}");
        let intact = ledger::named_outside(&good, bit / 8 / ledger::SLOT).len();
        let named = entries[0].processes.iter().filter(|process| process.pid.is_some()).count();
        assert_eq!(named, intact, "bit {bit}: a record was skipped: {entries:#?}");
    }
    ledger::write(&dir, &good);
    case.next_start();
    assert!(case.tag().is_free(), "survivors: {:#?}", case.tagged_processes());
}

/// Reaps after a change in each record, in magic, kind, identity, text and checksum. One orphan has the marker, and
/// only its record identifies the other one.
fn reaped_with_a_byte_flipped(case: &mut Case) {
    let slots = run_with_two_orphans(case).len() / ledger::SLOT;
    case.next_start();
    let places: &[usize] =
        if is_quick() { &[6, 60] } else { &[0, 4, 6, 9, 30, 44, 60, 64, 90, 120, 300, 510] };
    for slot in 0..slots {
        for place in places {
            let mut bytes = run_with_two_orphans(case);
            let named = ledger::named_outside(&bytes, slot).len();
            bytes[slot * ledger::SLOT + place] ^= 0x10;
            let dir = case.run_dirs().remove(0);
            ledger::write(&dir, &bytes);

            let told = case.cleanup().words();
            let left = case.tagged_processes();
            let at = format!("slot {slot}, byte {place}: {told}");
            assert!(told.contains("trouble") && !told.contains("trouble= "), "not reported: {at}");
            assert!(left.iter().all(|found| found.run.is_none()), "the marker was not followed: {at}");
            if named == 2 {
                assert!(left.is_empty(), "a record was skipped: {at}: {left:#?}");
            }
            case.end_survivors_and_go_on();
            remove_what_was_left_for_a_person(case);
            case.forget_runs();
        }
    }
}

fn run_with_two_orphans(case: &mut Case) -> Vec<u8> {
    let mut host = case.host_with(1, "heir");
    host.spawn(1, "orphan");
    case.note(&host);
    super::leave_a_dead_run(case, &mut host);
    ledger::read(&case.run_dirs()[0])
}

/// Removes a run that could not be read to its end. Such a run may be kept for a person to inspect.
pub(super) fn remove_what_was_left_for_a_person(case: &Case) {
    for dir in case.run_dirs() {
        fs::remove_dir_all(dir).expect("remove a damaged run");
    }
    super::ledger_of_another_boot::remove_cgroups_of_the_forgotten(case);
}
