//! Signals on demand at each step of a script, for tests. `SNAKEPIT_SCRIPT_FAULT=stop:15` sends signal 15 to the
//! process at the step `stop`, and `stop:15,cleanup:2` sends two signals.
//!
//! The crate `fail` does not fit: set from outside, it can return, sleep, pause, print or panic, and these tests need a signal
//! to the whole process.

/// A step of a script, with its number in `docs/lifecycle.md`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ScriptStep {
    /// 1
    Resolve,
    /// 2
    Engine,
    /// 3
    Await,
    /// 4
    Function,
    /// 5a
    Start,
    /// 5b
    Capture,
    /// 5c
    Stop,
    /// 5d
    Cleanup,
    /// 5e
    Exit,
}

#[cfg(not(feature = "failpoints"))]
pub(crate) fn reach(_: ScriptStep) {}

/// Sends the signals that the variable requests at this step.
#[cfg(feature = "failpoints")]
pub(crate) fn reach(step: ScriptStep) {
    let Ok(faults) = std::env::var("SNAKEPIT_SCRIPT_FAULT") else { return };
    let name = format!("{step:?}").to_lowercase();
    for fault in faults.split(',') {
        let Some((at, signal)) = fault.split_once(':') else { continue };
        if let (true, Ok(signal)) = (at == name, signal.parse()) {
            crate::custody::raise(signal);
        }
    }
}
