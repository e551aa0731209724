//! Shows the progress of building an environment: a bar on a terminal, a line for each step elsewhere.

use std::sync::{Mutex, PoisonError};

use snakepit::telemetry::{Event, observe};

use crate::shared::output::display::{BarLine, ProgressDisplay};

/// The number of characters of an environment's key that identify it for people.
const SHORT_KEY: usize = 8;

/// What to print if there is no terminal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WithoutTerminal {
    Silent,
    Steps,
}

/// Shows progress from now on.
pub(crate) fn show(display: &ProgressDisplay, without_terminal: WithoutTerminal) {
    if without_terminal == WithoutTerminal::Silent && !display.is_terminal() {
        return;
    }
    let display = display.clone();
    let last = Mutex::new(None);
    observe(move |event| match event {
        Event::EnvironmentProgress { key, step, steps, text, .. } if display.is_terminal() => {
            let short: String = key.chars().take(SHORT_KEY).collect();
            display.bar(&BarLine {
                template: "{bar:8} {wide_msg}",
                done: u64::from(step.saturating_sub(1)),
                of: u64::from(*steps),
                text: &format!("environment {short}: {text}"),
            });
        }
        Event::EnvironmentProgress { key, step, steps, text, .. } => {
            let is_new = last.lock().unwrap_or_else(PoisonError::into_inner).replace(*step) != Some(*step);
            if is_new {
                display.line(&format!("environment {key}: step {step} of {steps}: {text}"));
            }
        }
        Event::EnvironmentReady { .. } | Event::EnvironmentFailed { .. } => display.clear(),
        _ => {}
    });
}
