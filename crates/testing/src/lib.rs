//! Tests for authors of adapters and of mailbox backends: the checks for every [adapter](adapters), and those for every
//! backend of [mailboxes].
//!
//! Owns the checks. Knows no protocol and no backend. The crate `snakepit` re-exports it with the feature
//! `conformance`.
#![forbid(unsafe_code)]

pub mod adapters;
#[cfg(feature = "mailbox")]
pub mod mailboxes;

use snakepit_core::{
    Builder, CallError, CancelGrace, EngineError, Pool, PoolOptions, RemoteError, RemoteErrorKind, Restarts,
    Snakepit, StartError, Stuck, WhenStuck, adapter, call, causes,
};
use snakepit_custody as custody;
use snakepit_protocol::args;
use snakepit_protocol::value::{self, Value};
