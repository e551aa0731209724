//! Random sequences against the model.

use std::panic::{AssertUnwindSafe, catch_unwind};

use snakepit_proving::mailbox::model;
use snakepit_proving::rounds;

use crate::broken::{BrokenMemory, Fault};
use crate::memory::Memory;

#[test]
fn memory_does_what_the_model_does() {
    model::run(&Memory::default(), rounds(3000, 300) as u32);
}

#[test]
fn the_model_catches_what_is_broken_on_purpose() {
    let faults = [
        Fault::LosesSends,
        Fault::LosesNacks,
        Fault::LapsesLate,
        Fault::LapsesEarly,
        Fault::IgnoresExtensions,
        Fault::ExtensionsShorten,
        Fault::AcceptsStaleReceipts,
        Fault::CountsTwice,
        Fault::CountsReleases,
        Fault::UncountsNacks,
        Fault::GivesUpEarly,
        Fault::IgnoresPriorities,
        Fault::ForgetsDedupKeys,
        Fault::Reorders,
    ];
    for fault in faults {
        let outcome = catch_unwind(AssertUnwindSafe(|| model::run(&BrokenMemory::new(fault), 500)));
        assert!(outcome.is_err(), "{fault:?}");
    }
}
