//! How long the stages of a cancel may take.

use std::time::Duration;

#[cfg(feature = "config")]
use snakepit_settings::{HumanTime, settings};

/// How long each stage of a cancel may take before the next begins.
///
/// ```
/// use std::time::Duration;
///
/// use snakepit::pool::CancelGrace;
/// use snakepit::python;
///
/// let pool = python("worker.py").cancel_grace(CancelGrace::default().ask(Duration::from_secs(5)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
#[non_exhaustive]
pub struct CancelGrace {
    /// The time for the worker's code to see the flag and stop on its own.
    pub ask: Duration,
    /// The time for the exception that is raised in the call.
    pub raise: Duration,
    /// The time between TERM and KILL to the worker.
    pub terminate: Duration,
}

impl Default for CancelGrace {
    fn default() -> Self {
        Self { ask: Duration::from_secs(1), raise: Duration::from_secs(2), terminate: Duration::from_secs(3) }
    }
}

impl CancelGrace {
    /// Gives each stage the same time.
    pub const fn each(time: Duration) -> Self {
        Self { ask: time, raise: time, terminate: time }
    }

    /// Sets the time for the worker's code to see the flag and stop on its own. The default is one second.
    pub const fn ask(mut self, time: Duration) -> Self {
        self.ask = time;
        self
    }

    /// Sets the time for the exception that is raised in the call. The default is two seconds.
    pub const fn raise(mut self, time: Duration) -> Self {
        self.raise = time;
        self
    }

    /// Sets the time between TERM and KILL to the worker. The default is three seconds.
    pub const fn terminate(mut self, time: Duration) -> Self {
        self.terminate = time;
        self
    }
}

#[cfg(feature = "config")]
settings! {
    keys of CancelGrace {
        /// The time for the worker's code to see that the call was given up, and to stop on its own.
        ask: Duration as HumanTime,
        /// The time for an exception that is raised in the call.
        raise: Duration as HumanTime,
        /// The time between TERM and KILL to the worker, which also applies to a worker that is replaced. For the stop
        /// of an engine, see `[custody]`.
        terminate: Duration as HumanTime,
    }
}
