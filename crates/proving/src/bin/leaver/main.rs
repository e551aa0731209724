//! A host whose only concern is how it ends, for the tests to signal and to send out: orders in lines on standard
//! input, answers and everything that happens in lines on standard output.
//!
//! An order that does nothing worth telling is answered by `ok`. What is written goes past the buffer of std, since
//! that buffer is part of what is tested.

mod custody;
mod doors;
mod handlers;
mod notes;
mod stages;

use std::io::BufRead;

fn main() {
    let mut stages = stages::Stages::default();
    let mut doors = doors::Doors::default();
    let mut notes = notes::Notes::default();
    let mut custody = custody::Custody::default();
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let known = stages.obey(&words)
            || doors.obey(&words)
            || notes.obey(&words)
            || custody.obey(&words)
            || handlers::obey(&words);
        assert!(known, "no such order: {line:?}");
    }
}

/// Writes a line in one piece, whoever else writes.
fn tell(line: &str) {
    let line = format!("{line}\n");
    // A test that has stopped listening is about to kill us.
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

/// A signal by its number.
fn signal(word: &str) -> snakepit::lifecycle::Signal {
    snakepit::lifecycle::Signal::new(number(word)).expect("a signal that can be noted")
}

fn this_thread() -> String {
    std::thread::current().name().unwrap_or("nameless").to_owned()
}
