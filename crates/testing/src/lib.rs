//! Tests for authors of adapters and of mailbox backends: the checks for every [adapter](adapters), and those for every
//! backend of [mailboxes].
//!
//! Owns the checks. Knows no protocol and no backend. The crate `snakepit` re-exports it with the feature
//! `conformance`.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod adapters;
#[cfg(feature = "mailbox")]
pub mod mailboxes;

use snakepit_core::{
    CallError, CancelGrace, Pool, PoolOptions, RemoteError, RemoteErrorKind, Restarts, StartError, Stuck,
    WhenStuck, adapter, call, error_text,
};
use snakepit_custody as custody;
use snakepit_engine::{Builder, EngineError, Snakepit};
use snakepit_protocol::args;
use snakepit_protocol::value::{self, Value};
