//! What both versions of the link share: the keeper's program, its parameters, how bytes are sent to it, and its answer
//! to a spawn.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use crate::RunId;
use crate::process::wait::ready_within;
use crate::run::event::EventSink;
use crate::state::{RunDir, StateDir};

use super::wire::{KeeperInit, MAX_FDS, SpawnAnswer};

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

/// `DONTWAIT` instead of `O_NONBLOCK`, which would also affect the reading thread.
#[cfg(not(target_vendor = "apple"))]
const SEND_FLAGS: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);
#[cfg(target_vendor = "apple")]
const SEND_FLAGS: SendFlags = SendFlags::DONTWAIT;

/// Sends bytes with these descriptors. Waits while the socket is full. Returns how many bytes were sent.
pub(crate) fn send_some(
    socket: impl AsFd,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
    deadline: Instant,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    loop {
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(Errno::TOOMANYREFS.into());
        }
        match rustix::net::sendmsg(&socket, &[IoSlice::new(bytes)], &mut ancillary, SEND_FLAGS) {
            Ok(sent) => return Ok(sent),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(Errno::TIMEDOUT.into());
                }
                ready_within(&socket, PollFlags::OUT, left);
            }
            Err(errno) => return Err(errno.into()),
        }
    }
}
