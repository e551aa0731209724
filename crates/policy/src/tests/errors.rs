//! The texts of all decisions and faults that errors and events name.

use std::time::Duration;

use rustix::process::Signal;
use snakepit_custody::ExitStatus;
use snakepit_error_texts::{ErrorTexts, every_text};

use crate::taint::fault::{WorkerExit, fault_of};
use crate::{NoRetry, RecycleReason};

#[test]
fn every_decision_and_every_fault_is_in_words() {
    let mut texts = ErrorTexts::new();
    every_text!(texts, NoRetry {
        Attempts => [NoRetry::Attempts],
        Deadline => [NoRetry::Deadline],
        Budget => [NoRetry::Budget],
        Delivered => [NoRetry::Delivered],
        Quarantined => [NoRetry::Quarantined],
        CircuitOpen => [NoRetry::CircuitOpen],
        Queue => [NoRetry::Queue],
        Refused => [NoRetry::Refused],
    });
    every_text!(texts, RecycleReason {
        MaxRequests => [RecycleReason::MaxRequests(1000)],
        Ttl => [RecycleReason::Ttl(Duration::from_hours(1))],
        Idle => [RecycleReason::Idle(Duration::from_mins(5))],
        Memory => [RecycleReason::Memory { bytes: 700 << 20, limit: 512 << 20 }],
        ByHand => [RecycleReason::ByHand],
    });
    for (signal, line, pattern) in [
        (Signal::SEGV, "RuntimeError: CUDA error: device-side assert triggered", ""),
        (Signal::ABORT, "double free or corruption (out)", ""),
        (Signal::BUS, "reading weights.bin", ""),
        (Signal::KILL, "license server lost", "license server"),
    ] {
        let output = [line.to_owned()];
        let exit =
            WorkerExit { status: Some(ExitStatus::Signal(signal.as_raw())), by_pool: false, output: &output };
        let fault = fault_of(&exit, &[pattern.to_owned()]).expect("a fault");
        texts.add_text(&format!("{:?}", fault.kind), &fault);
    }
    insta::assert_snapshot!(texts);
}
