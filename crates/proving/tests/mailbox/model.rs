//! Compares backends with the model in random sequences.

use std::panic::{AssertUnwindSafe, catch_unwind};

use snakepit::mailbox_conformance::model;
use snakepit_proving::rounds;

use crate::broken::{BackendFault, BrokenFixture};
use crate::memory::MemoryFixture;

#[test]
fn the_memory_mailbox_matches_the_model() {
    model::run(&MemoryFixture::default(), rounds(3000, 300) as u32);
}

#[test]
fn the_model_detects_every_injected_backend_fault() {
    let faults = [
        BackendFault::LosesSends,
        BackendFault::LosesNacks,
        BackendFault::LapsesLate,
        BackendFault::LapsesEarly,
        BackendFault::IgnoresExtensions,
        BackendFault::ExtensionsShorten,
        BackendFault::AcceptsStaleReceipts,
        BackendFault::CountsTwice,
        BackendFault::CountsReleases,
        BackendFault::UncountsNacks,
        BackendFault::GivesUpEarly,
        BackendFault::IgnoresPriorities,
        BackendFault::ForgetsDedupKeys,
        BackendFault::Reorders,
    ];
    for fault in faults {
        let outcome = catch_unwind(AssertUnwindSafe(|| model::run(&BrokenFixture::new(fault), 500)));
        assert!(outcome.is_err(), "{fault:?}");
    }
}
