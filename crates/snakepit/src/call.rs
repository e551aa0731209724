//! Calls: how they are asked for, what they answer, and what is known of one that failed.

pub use snakepit_core::call::{
    Autopsy, Batching, Call, CallError, CallId, Chain, Input, Link, MAX_NESTING, Portion, RemoteError,
    RemoteErrorKind, Verdict,
};
pub use snakepit_core::{
    CallBuilder, CallStream, MapAsTheyCome, MapBuilder, MapInOrder, Progress, StreamBuilder, ToolAnswer,
    ToolContext,
};
