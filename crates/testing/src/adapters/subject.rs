//! The subject of the checks: a pool of the conformance worker, and the features that its adapter lacks.

use crate::PoolOptions;

/// An adapter under test.
pub trait Subject: Send + Sync + 'static {
    /// Returns a pool of the conformance worker (`docs/adapters-contract.md`) that starts in this way. The suite sets
    /// the number of workers, the timeouts and the name.
    fn pool(&self, way: Way) -> PoolOptions;

    /// Returns whether the adapter has a feature. The suite trusts the answer and skips the checks of an absent
    /// feature. Even then, a value without a form must be rejected with its path.
    fn capability(&self, _feature: Feature) -> Capability {
        Capability::Present
    }
}

/// How the conformance worker behaves at its start. Only workers that are processes are started in the last two ways.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// The worker becomes ready and serves.
    Ready,
    /// The worker runs, but never reports that it is ready.
    NeverReady,
    /// The worker writes `no, thank you` to standard error and exits with status 3 before it is ready.
    EndsBeforeReady,
}

impl Way {
    /// Returns a word for the way, for a worker's command line or environment.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::NeverReady => "never-ready",
            Self::EndsBeforeReady => "ends-before-ready",
        }
    }
}

/// Whether an adapter has a feature.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Capability {
    /// It has the feature.
    Present,
    /// It lacks the feature, for this reason: `Absent("JSON has no bytes")`.
    Absent(&'static str),
}

/// A feature that not every protocol has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Feature {
    /// Workers are processes.
    Processes,
    /// Workers report their commands.
    Commands,
    /// A worker executes several calls at the same time if the pool is configured so.
    Concurrency,
    /// A worker may print, and its output is kept.
    Prints,
    /// A worker knows how much of the caller's time is left.
    Deadline,
    /// A worker knows the session of a call.
    Sessions,
    /// A worker gets the metadata of a call.
    Metadata,
    /// A worker can use the tools of the host.
    Tools,
    /// Integers of 64 bits. Without this feature, integers end at 2^53, as in JavaScript, and larger ones must be
    /// rejected.
    WideIntegers,
    /// Integers beyond 64 bits.
    BigIntegers,
    /// Floats that are distinct from integers. Without this feature, 1.0 is 1, as in JavaScript.
    DistinctFloats,
    /// Floats that are not finite: NaN and the infinities.
    NonFiniteFloats,
    /// Byte strings.
    Bytes,
    /// Date-times, with and without a zone.
    DateTimes,
    /// Keys of maps that are not text.
    AnyKeys,
    /// Errors have a type.
    ErrorTypes,
    /// Errors have a traceback.
    Tracebacks,
    /// Errors have a cause.
    Causes,
    /// A result that cannot be sent is an error that contains the path.
    RefusedResults,
    /// A command can answer with many values.
    Streams,
    /// A slow reader makes the worker wait.
    Backpressure,
    /// A cancellation reaches the function.
    Cancel,
    /// A worker can die in a call.
    Crash,
    /// A worker can break the protocol.
    Garbage,
}
