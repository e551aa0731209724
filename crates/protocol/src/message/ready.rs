//! READY: the first frame of a worker that can serve.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

/// What a worker says of itself when it can serve.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ReadyMessage {
    /// The version of the protocol.
    pub protocol: u32,
    /// The version of the SDK.
    pub sdk: String,
    /// The language and its version.
    pub language: String,
    /// The process, as it sees itself.
    pub pid: u32,
    /// The commands that the worker serves.
    pub commands: Vec<String>,
    /// The signals that the worker handles.
    pub signals: Signals,
    /// What the worker understands beyond what every worker does.
    pub features: Vec<String>,
    /// The commands that take many calls at a time.
    pub batches: BTreeMap<String, Batching>,
    /// All other keys. With this field, only a map is a READY.
    #[serde(flatten)]
    _others: IgnoredAny,
}

/// The signals that a worker handles.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Signals {
    /// The signal at which it writes the stacks of its threads.
    pub stack: Option<i32>,
    /// The signal that comes with stage 2 of a CANCEL.
    pub cancel: Option<i32>,
    /// The signal at which it writes where its tasks are.
    pub tasks: Option<i32>,
}

/// How the calls of a command are gathered into batches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub struct Batching {
    /// The largest number of calls that travel together.
    pub size: u32,
    /// How long calls are gathered, in microseconds.
    #[serde(default)]
    pub window_us: u64,
}
