//! What is checked: a pool of the conformance worker, and what its adapter cannot do.

use crate::PoolOptions;

/// An adapter under test.
pub trait Subject: Send + Sync + 'static {
    /// A pool of the conformance worker (`docs/adapters-contract.md`), started in this way. The suite sets the number of
    /// workers, the times and the name.
    fn pool(&self, way: Way) -> PoolOptions;

    /// Whether the adapter can do this. What it says here is believed: an absent feature's checks are skipped, except that
    /// values without a form must be refused with their place.
    fn capability(&self, _feature: Feature) -> Capability {
        Capability::Present
    }
}

/// How the conformance worker behaves when it is started. Only one that is a process is asked for the last two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// It gets ready and serves.
    Ready,
    /// It runs, and never says that it is ready.
    NeverReady,
    /// It writes `no, thank you` to standard error and exits with status 3 before it is ready.
    EndsBeforeReady,
}

impl Way {
    /// A word for it, for a worker's command line or environment.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::NeverReady => "never-ready",
            Self::EndsBeforeReady => "ends-before-ready",
        }
    }
}

/// Whether an adapter can do something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Capability {
    /// It can.
    Present,
    /// It cannot, for this reason: `Absent("JSON has no bytes")`.
    Absent(&'static str),
}

/// What not every protocol can do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Feature {
    /// Its workers are processes.
    Processes,
    /// Its workers say which commands they have.
    Commands,
    /// A worker does several calls at the same time if it is told to.
    Concurrency,
    /// A worker may print, and what it prints is kept.
    Prints,
    /// A worker knows how much of the caller's time is left.
    Deadline,
    /// A worker knows the session.
    Sessions,
    /// A worker knows what the caller sent along.
    Metadata,
    /// A worker can use the tools of the host.
    Tools,
    /// Integers of 64 bits. Those of other workers end at 2^53, as in JavaScript; larger ones must be refused.
    WideIntegers,
    /// Integers beyond 64 bits.
    BigIntegers,
    /// Floats are told apart from integers. To other workers 1.0 is 1, as in JavaScript.
    DistinctFloats,
    /// Floats that are no numbers: NaN and the infinities.
    NonFiniteFloats,
    /// Byte strings.
    Bytes,
    /// Date-times, with and without a zone.
    DateTimes,
    /// Keys of maps that are not text.
    AnyKeys,
    /// An error has a type.
    ErrorTypes,
    /// An error has a traceback.
    Tracebacks,
    /// An error has a cause.
    Causes,
    /// A result that cannot be sent is an error that names the place.
    RefusedResults,
    /// A command can answer with many values.
    Streams,
    /// A reader that is slow makes the worker wait.
    Backpressure,
    /// A cancel reaches the function.
    Cancel,
    /// A worker can die in a call.
    Crash,
    /// A worker can break the protocol.
    Garbage,
}
