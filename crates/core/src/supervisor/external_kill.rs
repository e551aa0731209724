//! Whether a worker was ended from outside. Starts and reloads must know that.

use rustix::process::Signal;

use crate::adapter::StartError;
use crate::call::{Autopsy, OomVerdict};
use crate::custody::ExitStatus;

/// Reports whether something unrelated to the worker's code may have ended it: an operator, or the end of its keeper.
pub(super) fn died_from_outside(autopsy: &Autopsy) -> bool {
    let status = autopsy.exit.map(|exit| exit.status);
    autopsy.fault.is_none() && autopsy.oom != OomVerdict::Yes && status.is_some_and(is_from_outside)
}

/// Like `died_from_outside`, for a worker that did not become ready.
pub(super) fn failed_from_outside(error: &StartError) -> bool {
    matches!(error, StartError::Exited { status, .. } if is_from_outside(*status))
}

fn is_from_outside(status: ExitStatus) -> bool {
    match status {
        ExitStatus::Signal(signal) => matches!(
            Signal::from_named_raw(signal),
            Some(Signal::KILL | Signal::TERM | Signal::INT | Signal::HUP | Signal::QUIT)
        ),
        ExitStatus::Lost | ExitStatus::ShimKilled => true,
        ExitStatus::Code(_) => false,
    }
}
