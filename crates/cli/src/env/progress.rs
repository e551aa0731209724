//! How far an environment is that is being made: a bar on a terminal, a line for each step elsewhere.

use std::sync::Mutex;
use std::sync::PoisonError;

use snakepit::Progress;
use snakepit::telemetry::{Event, observe};

use crate::call::screen::{Screen, width};

/// How wide the bar is, and how wide a terminal must be for it to have a name.
const BAR: usize = 16;
const WIDE: usize = 64;

/// Whether steps are told where there is no terminal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Elsewhere {
    Silent,
    Steps,
}

/// Shows it from now on.
pub(crate) fn show(screen: &Screen, elsewhere: Elsewhere) {
    if elsewhere == Elsewhere::Silent && !screen.is_terminal() {
        return;
    }
    let screen = screen.clone();
    let last = Mutex::new(None);
    observe(move |event| match event {
        Event::EnvironmentProgress { key, step, steps, text, .. } if screen.is_terminal() => {
            let text = format!("{} {text}", bar(key, *step, *steps, width()));
            screen.progress(&Progress { fraction: None, text: Some(text) });
        }
        Event::EnvironmentProgress { key, step, steps, text, .. } => {
            let is_new = last.lock().unwrap_or_else(PoisonError::into_inner).replace(*step) != Some(*step);
            if is_new {
                screen.line(&format!("environment {key}: step {step} of {steps}: {text}"));
            }
        }
        Event::EnvironmentReady { .. } | Event::EnvironmentFailed { .. } => screen.clear(),
        _ => {}
    });
}

/// In a narrow terminal, what is being done has the room.
fn bar(key: &str, step: u32, steps: u32, width: usize) -> String {
    let length = if width < WIDE { BAR / 2 } else { BAR };
    let done = length * step.saturating_sub(1) as usize / steps.max(1) as usize;
    let bar = format!("[{}{}]", "#".repeat(done), "-".repeat(length - done.min(length)));
    let short: String = key.chars().take(8).collect();
    if width < WIDE { bar } else { format!("environment {short} {bar}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_shows_the_steps_that_are_done() {
        assert_eq!(bar("0123456789", 0, 4, 80), "environment 01234567 [----------------]");
        assert_eq!(bar("0123456789", 3, 4, 80), "environment 01234567 [########--------]");
        assert_eq!(bar("0123456789", 3, 4, 40), "[####----]");
    }
}
