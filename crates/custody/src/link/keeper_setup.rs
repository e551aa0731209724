//! What both versions of the link share: the keeper's program, its parameters, and its answer to a spawn.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use crate::RunId;
use crate::run::event::EventSink;
use crate::state::{RunDir, StateDir};

use super::wire::{KeeperInit, SpawnAnswer};

/// The keeper's name on its command line, before the run's id.
pub(crate) const KEEPER_NAME: &str = "snakepit-keeper";

/// The name of the keeper's program in the state directory. Each build has its own.
pub(crate) const KEEPER_FILE: &str = concat!("keeper-", env!("SNAKEPIT_KEEPER_HASH"));

/// The keeper's program, see `build.rs`.
pub(crate) static KEEPER_PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/snakepit-keeper"));

/// How long a keeper may leave a message unread before the host gives up on it.
pub(crate) const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// The parameters of a new keeper.
pub(crate) struct KeeperSetup<'a> {
    pub(crate) state: &'a StateDir,
    /// Receives the report of a damaged keeper program.
    pub(crate) sink: &'a EventSink,
    pub(crate) run: RunId,
    pub(crate) dir: &'a RunDir,
    pub(crate) lock: BorrowedFd<'a>,
    /// Always `None` on systems other than Linux.
    pub(crate) cgroup: Option<OwnedFd>,
    #[cfg(portable)]
    pub(crate) poll_interval: Duration,
    pub(crate) init: KeeperInit,
}

/// The result of a spawn.
pub(crate) enum SpawnReply {
    /// The keeper's answer. If the worker was started, also the descriptor that reports its end.
    Came(SpawnAnswer, Option<OwnedFd>),
    /// The keeper is gone.
    Closed,
    TimedOut,
}
