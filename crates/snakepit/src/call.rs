//! Calls: their options, their answers, and the errors of those that fail.

pub use snakepit_core::call::{
    Autopsy, Batching, Call, CallError, CallId, Chain, Input, Link, MAX_NESTING, NoWorkersReason, OomVerdict,
    Portion, RemoteError, RemoteErrorKind,
};
pub use snakepit_core::{
    CallBuilder, CallStream, MapAsTheyCome, MapBuilder, MapInOrder, PendingCall, Progress, StreamBuilder,
    ToolAnswer, ToolContext, Withdrawal,
};
