//! A host for tests of signals and exits: it reads orders in lines from standard input, and prints answers and events
//! in lines on standard output.
//!
//! The answer to an order without a result is `ok`. Output does not go through the buffer of std, because that buffer
//! is part of what is tested.

mod custody;
mod exit_hooks;
mod handlers;
mod signal_notes;
mod stages;

use std::io::BufRead;

fn main() {
    let mut stages = stages::ShutdownStages::default();
    let mut exit_hooks = exit_hooks::ExitHooks::default();
    let mut signal_notes = signal_notes::ReceivedSignals::default();
    let mut custody = custody::LeaverRuns::default();
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let known = stages.obey(&words)
            || exit_hooks.obey(&words)
            || signal_notes.obey(&words)
            || custody.obey(&words)
            || handlers::obey(&words);
        assert!(known, "no such order: {line:?}");
    }
}

/// Writes a line in one piece, even if other processes write too.
fn tell(line: &str) {
    let line = format!("{line}\n");
    // A test that has stopped listening is about to kill this process.
    let _ = rustix::io::write(rustix::stdio::stdout(), line.as_bytes());
}

fn hang() -> ! {
    loop {
        std::thread::park();
    }
}

fn number(word: &str) -> i32 {
    word.parse().unwrap_or_else(|_| panic!("not a number: {word:?}"))
}

/// Parses a signal from its number.
fn signal(word: &str) -> snakepit::lifecycle::Signal {
    snakepit::lifecycle::Signal::new(number(word)).expect("a signal that can be noted")
}

fn this_thread() -> String {
    std::thread::current().name().unwrap_or("nameless").to_owned()
}
