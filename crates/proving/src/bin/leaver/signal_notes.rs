//! Orders about the signals that custody records without a coordinator.

use snakepit::custody::SignalNotes;

use crate::{number, signal, tell};

#[derive(Default)]
pub(crate) struct ReceivedSignals {
    signal_notes: Option<SignalNotes>,
}

impl ReceivedSignals {
    pub(crate) fn obey(&mut self, words: &[&str]) -> bool {
        match words {
            ["take", signals @ ..] => {
                let signals: Vec<_> = signals.iter().map(|word| signal(word)).collect();
                match SignalNotes::take(&signals) {
                    Ok(signal_notes) => {
                        self.signal_notes = Some(signal_notes);
                        tell("ok");
                    }
                    Err(error) => tell(&error.to_string()),
                }
            }
            ["next"] => {
                let next = self.signal_notes.as_ref().expect("taken first").next();
                tell(&next.map_or("none".to_owned(), |signal| signal.as_raw().to_string()));
            }
            ["give-back"] => {
                self.signal_notes.take().expect("taken first").give_back();
                tell("ok");
            }
            ["flood", signal, count] => flood(number(signal), number(count)),
            _ => return false,
        }
        true
    }
}

/// Raises a signal `count` times, and prints how often errno was different afterwards.
fn flood(signal: i32, count: i32) {
    let mut changed = 0;
    for _ in 0..count {
        // SAFETY: it is the address of this thread's errno. The handler runs inside `raise`.
        unsafe {
            libc::raise(signal);
            *libc::__errno_location() = 77;
            libc::raise(signal);
            if *libc::__errno_location() != 77 {
                changed += 1;
            }
        }
    }
    tell(&format!("changed {changed}"));
}
