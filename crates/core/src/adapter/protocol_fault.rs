//! The faults of workers that violate the protocol of their adapter, or can no longer be called.

use std::fmt;

pub use snakepit_protocol::frame::{BadHeader, FrameKind};

use crate::custody::Pid;
use crate::value::ValueError;

/// How a worker violated the protocol of its adapter, or why it can no longer be called.
///
/// The text has the worker as its subject: "it closed its socket". An adapter for another protocol reports a fault of
/// its own as [`ProtocolFault::Other`], which is also what a string converts to.
///
/// ```
/// use snakepit::adapter::ProtocolFault;
///
/// let fault = ProtocolFault::UnsentAnswer { call: 7 };
/// assert_eq!(fault.to_string(), "it answered call 7 before it was sent");
/// assert_eq!(ProtocolFault::from("it sang"), ProtocolFault::Other("it sang".into()));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolFault {
    /// The worker closed a channel to the host.
    #[error("it closed its {0}")]
    Closed(WorkerChannel),
    /// The worker closed its socket in the middle of a frame.
    #[error("it closed its socket in the middle of a frame")]
    CutFrame,
    /// A channel to the worker failed.
    #[error("its {channel} broke: {error}")]
    Broke {
        /// The channel.
        channel: WorkerChannel,
        /// The error of the system or the library.
        error: String,
    },
    /// The worker ended.
    #[error("it ended")]
    Ended,
    /// The host ended the worker.
    #[error("it was ended")]
    EndedByHost,
    /// The fault came before the worker was ready.
    #[error("{0} before it was ready")]
    BeforeReady(Box<Self>),
    /// A check of the worker failed before it served. The text is that of the [`StartError`](super::StartError).
    #[error("{0}")]
    CheckFailed(String),
    /// The runtime of the engine was dropped.
    #[error("the runtime of its engine was dropped")]
    RuntimeDropped,
    /// The adapter panicked while it started the worker. The worker need not be at fault.
    #[error("its adapter panicked: {0}")]
    AdapterPanicked(String),

    /// The header of a frame is invalid.
    #[error(transparent)]
    BadHeader(#[from] BadHeader),
    /// The payload of a frame cannot be read.
    #[error("it sent a frame of kind {kind:?} that cannot be read: {error}")]
    UnreadableFrame {
        /// The kind of the frame.
        kind: FrameKind,
        /// What is wrong with its payload.
        error: ValueError,
    },
    /// The worker sent a frame that only the host may send.
    #[error("it sent a frame of kind {0:?}, which only the host may send")]
    HostFrame(FrameKind),
    /// The worker sent a line that is longer than `max_frame`.
    #[error("it sent a line that is longer than max_frame")]
    LineTooLong,
    /// A log message cannot be read.
    #[error("it sent a log that cannot be read: {0}")]
    UnreadableLog(ValueError),
    /// The worker reports that the host violates the protocol.
    #[error("it reports that the host broke the protocol: {0}")]
    Rejection(String),

    /// The worker speaks another version of the protocol.
    #[error("it speaks protocol {worker}, and this engine speaks {engine}")]
    Version {
        /// The version of the worker, as it says it.
        worker: String,
        /// The version of the engine.
        engine: u64,
    },
    /// The worker reported a second time that it is ready.
    #[error("it reported twice that it is ready")]
    ReadyTwice,
    /// The worker sent an error that belongs to no call after it was ready.
    #[error("it sent an error that belongs to no call")]
    ErrorWithoutCall,
    /// The line with which the worker reports that it is ready is wrong.
    #[error("its ready line is wrong: {reason}: {line}")]
    BadReadyLine {
        /// What is wrong with the line.
        reason: String,
        /// The beginning of the line.
        line: String,
    },
    /// The ready line names the pid of a process that is not the worker's.
    #[error(
        "its ready line names the pid {announced}, which is neither the process that was started ({started}) nor one \
         that it has started: write the pid that the server gets from getpid()"
    )]
    StrangePid {
        /// The pid in the ready line.
        announced: u32,
        /// The pid of the process that was started.
        started: Pid,
    },
    /// The worker does not say where it listens.
    #[error("it does not say where it listens")]
    NoAddress,
    /// The worker cannot be reached at its address.
    #[error("it does not listen where it says: {error}")]
    Unreachable {
        /// The error of the connection.
        error: String,
    },
    /// The worker cannot be proven to be the one who listens at its address.
    #[error("{0}")]
    UnprovenListener(String),
    /// The worker does not speak HTTP/2.
    #[error("it does not speak HTTP/2: {error}")]
    NotHttp2 {
        /// The error of the handshake.
        error: String,
    },
    /// The worker's server does not know the RPC with which a conversation begins.
    #[error("its server does not know {rpc}: see spec/snakepit.proto")]
    UnknownRpc {
        /// The RPC.
        rpc: &'static str,
    },
    /// An RPC with which a conversation begins failed.
    #[error("it does not answer {rpc}: {status}")]
    FailedRpc {
        /// The RPC.
        rpc: &'static str,
        /// The status with which it failed.
        status: String,
    },
    /// The worker wants values in an encoding that is unknown.
    #[error("it wants values in the encoding {0}, which is unknown")]
    UnknownEncoding(i32),

    /// The worker answered a call that it cannot know: it guesses the numbers of calls.
    #[error("it answered call {call} before it was sent")]
    UnsentAnswer {
        /// The call.
        call: u64,
    },
    /// The worker answered many calls that travel together with the answer of one.
    #[error("it answered call {call}, a batch, with a {kind:?} instead of Results")]
    OneAnswerForMany {
        /// The call.
        call: u64,
        /// The kind of the frame.
        kind: FrameKind,
    },
    /// The worker answered one call with the results of many.
    #[error("it sent Results for call {call}, which is one call")]
    ResultsForOne {
        /// The call.
        call: u64,
    },
    /// The worker sent more results than calls travel together.
    #[error("it sent {results} results for the {inputs} inputs of call {call}")]
    TooManyResults {
        /// The call.
        call: u64,
        /// The number of results so far.
        results: usize,
        /// The number of inputs.
        inputs: usize,
    },
    /// The worker sent a frame without results, and more to follow.
    #[error("it sent empty Results for call {call}, and more to follow")]
    EmptyResults {
        /// The call.
        call: u64,
    },
    /// The worker sent more of a stream than it had credit for.
    #[error("it sent more {unit} for call {call} than it had credit for")]
    CreditExceeded {
        /// The call.
        call: u64,
        /// What there was too much of.
        unit: CreditUnit,
    },
    /// The worker asked for a tool with the id of another tool call under way.
    #[error("it asked for a tool with the id {id}, which it uses for another tool call under way")]
    ToolIdInUse {
        /// The id.
        id: u64,
    },
    /// The worker asks for tools, and does not read that they are refused.
    #[error("it keeps calling tools without reading the answers")]
    UnreadRefusals,
    /// The arguments of a tool cannot be read.
    #[error("it called a tool with arguments that cannot be read: {0}")]
    UnreadableToolArguments(ValueError),

    /// A fault that only the protocol of one adapter has.
    #[error("{0}")]
    Other(String),
}

impl ProtocolFault {
    /// Creates the fault for a channel that failed.
    pub fn broke(channel: WorkerChannel, error: impl fmt::Display) -> Self {
        Self::Broke { channel, error: error.to_string() }
    }

    /// Creates the fault for a worker that cannot be reached at its address.
    pub fn unreachable(error: impl fmt::Display) -> Self {
        Self::Unreachable { error: error.to_string() }
    }
}

impl From<String> for ProtocolFault {
    fn from(fault: String) -> Self {
        Self::Other(fault)
    }
}

impl From<&str> for ProtocolFault {
    fn from(fault: &str) -> Self {
        Self::Other(fault.into())
    }
}

/// A channel between a worker and the host.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum WorkerChannel {
    /// The socket that the worker inherits.
    Socket,
    /// The worker's standard input.
    StandardInput,
    /// The worker's standard output.
    StandardOutput,
    /// The RPC for messages beside calls.
    Link,
    /// The connection to the server that the worker is.
    Connection,
}

impl fmt::Display for WorkerChannel {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Socket => "socket",
            Self::StandardInput => "standard input",
            Self::StandardOutput => "standard output",
            Self::Link => "link",
            Self::Connection => "connection",
        })
    }
}

/// What the credit of a stream counts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CreditUnit {
    /// The items of the stream.
    Items,
    /// The bytes of the items.
    Bytes,
}

impl fmt::Display for CreditUnit {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Items => "items",
            Self::Bytes => "bytes",
        })
    }
}
