//! Faults on demand at each step of the state machine, for tests: `SNAKEPIT_SCRIPT_FAULT=stop:15` sends the process a
//! signal when it gets there, `stop:15,cleanup:2` one after the other.

/// Where in the state machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
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
pub(crate) fn reach(_: Step) {}

/// Sends what was asked for.
#[cfg(feature = "failpoints")]
pub(crate) fn reach(step: Step) {
    let Ok(faults) = std::env::var("SNAKEPIT_SCRIPT_FAULT") else { return };
    let name = format!("{step:?}").to_lowercase();
    for fault in faults.split(',') {
        let Some((at, signal)) = fault.split_once(':') else { continue };
        if let (true, Ok(signal)) = (at == name, signal.parse()) {
            crate::custody::raise(signal);
        }
    }
}
