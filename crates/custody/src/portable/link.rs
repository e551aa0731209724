//! The host's link to one keeper, without pidfds, packet sockets and memfds.
//!
//! One stream socket with frames (see `keeper/inbox.rs`), the keeper's program run from the state directory, and
//! the keeper itself as a child that nobody signals once it is reaped.

use std::io::{self, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::process::{Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::event::EventSink;
use crate::identity::until;
use crate::reaper::error_chain;
use crate::state::{RunDir, StateDir};
use crate::wait::ready_within;
use crate::wire::{Answer, Init, MAX_FDS, MAX_ORDERS, ToHost, ToKeeper};
use crate::{Pid, RunId};

/// The keeper's name on its command line; the run's id follows it.
const KEEPER_NAME: &str = "snakepit-keeper";

/// The keeper's program, see `build.rs`.
static KEEPER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/snakepit-keeper"));

/// How long a keeper may leave a message unread before it is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long the keeper's program may be busy.
const BUSY_PATIENCE: Duration = Duration::from_secs(5);

/// What fits the keeper's call.
const LONGEST_POLL_MS: u128 = i32::MAX as u128;

/// The link to one keeper.
#[derive(Debug)]
pub(crate) struct Link {
    control: UnixStream,
    /// One message is not mixed with another.
    sending: Mutex<()>,
    child: Child,
    poll_interval: Duration,
    pub(crate) pid: Pid,
}

/// What a keeper is given at its start.
pub(crate) struct Outfit<'a> {
    pub(crate) state: &'a StateDir,
    /// Where it is told if the keeper's program is damaged.
    pub(crate) sink: &'a EventSink,
    pub(crate) run: RunId,
    pub(crate) dir: &'a RunDir,
    pub(crate) lock: BorrowedFd<'a>,
    /// There is none here.
    pub(crate) cgroup: Option<OwnedFd>,
    pub(crate) poll_interval: Duration,
    pub(crate) init: Init,
}

/// The keeper as a child; shared, so that whoever signals it knows that it is not reaped.
#[derive(Clone, Debug)]
pub(crate) struct Child {
    pid: rustix::process::Pid,
    unreaped: Arc<Mutex<Option<std::process::Child>>>,
}

impl Child {
    fn unreaped(&self) -> MutexGuard<'_, Option<std::process::Child>> {
        self.unreaped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[expect(clippy::disallowed_methods, reason = "a child that is not reaped keeps its pid")]
    fn signal(&self, signal: Signal) {
        let unreaped = self.unreaped();
        if unreaped.is_some() {
            let _ = kill_process(self.pid, signal);
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "std's own has it, and callers are the same")]
    pub(crate) fn kill(&mut self) -> io::Result<()> {
        self.signal(Signal::KILL);
        Ok(())
    }

    /// Waits for its end and reaps it.
    pub(crate) fn wait(&mut self) -> io::Result<()> {
        // Without the lock, and without reaping: others may want to signal it meanwhile.
        while let Err(Errno::INTR) =
            waitid(WaitId::Pid(self.pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
        {}
        match self.unreaped().take() {
            Some(mut child) => child.wait().map(drop),
            None => Ok(()),
        }
    }

    fn has_ended(&self) -> bool {
        let unreaped = self.unreaped();
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        unreaped.is_none() || !matches!(waitid(WaitId::Pid(self.pid), options), Ok(None))
    }
}

impl Link {
    /// Starts a keeper.
    pub(crate) fn start(outfit: Outfit<'_>) -> io::Result<(Self, Child)> {
        debug_assert!(outfit.cgroup.is_none());
        let (control, keeper_end) = UnixStream::pair()?;
        // A host that does not ignore SIGPIPE shall not die of a keeper that is gone.
        #[cfg(target_vendor = "apple")]
        rustix::net::sockopt::set_socket_nosigpipe(&control, true)?;
        let (mut child, pid) = launch(&outfit, keeper_end)?;
        let poll_interval = outfit.poll_interval;
        let link = Self { control, sending: Mutex::new(()), child: child.clone(), poll_interval, pid };
        match link.send(&ToKeeper::Init(outfit.init).encode(), &[outfit.lock]) {
            Ok(()) => Ok((link, child)),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Sends a command to start; gives back where the answer will come.
    pub(crate) fn send_orders(
        &self,
        key: u64,
        worker: Vec<u8>,
        orders: Vec<u8>,
        fds: &[OwnedFd],
    ) -> io::Result<OwnedFd> {
        if orders.len() > MAX_ORDERS {
            return Err(Errno::TOOBIG.into());
        }
        let (answer, keeper_end) = UnixStream::pair()?;
        let keeper_end = OwnedFd::from(keeper_end);
        let fds: Vec<_> = std::iter::once(&keeper_end).chain(fds).map(AsFd::as_fd).collect();
        self.send(&ToKeeper::Spawn { key, worker, orders }.encode(), &fds)?;
        Ok(answer.into())
    }

    /// Sends one message, waiting for room; a keeper that does not read for long is given up.
    pub(crate) fn send(&self, message: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let _alone = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        let deadline = Instant::now() + PATIENCE;
        let mut head = (message.len() as u32).to_le_bytes().to_vec();
        head.extend_from_slice(&(fds.len() as u32).to_le_bytes());
        // The descriptors travel with the first byte, so with the head, and with nothing before it.
        let sent = self.send_some(&head, fds, deadline)?;
        for mut rest in [&head[sent..], message] {
            while !rest.is_empty() {
                let sent = self.send_some(rest, &[], deadline).inspect_err(|_| self.give_up())?;
                rest = &rest[sent..];
            }
        }
        Ok(())
    }

    fn send_some(&self, bytes: &[u8], fds: &[BorrowedFd<'_>], deadline: Instant) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        loop {
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
                return Err(Errno::TOOMANYREFS.into());
            }
            match rustix::net::sendmsg(&self.control, &[IoSlice::new(bytes)], &mut ancillary, SEND_FLAGS) {
                Ok(sent) => return Ok(sent),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(Errno::TIMEDOUT.into());
                    }
                    ready_within(&self.control, PollFlags::OUT, left);
                }
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Half a message was sent: nothing that follows could be understood.
    fn give_up(&self) {
        let _ = self.control.shutdown(std::net::Shutdown::Both);
    }

    /// Waits for the keeper's next message; `None` when it is gone.
    pub(crate) fn receive(&self) -> Option<ToHost> {
        ToHost::decode(&read_frame(&self.control)?)
    }

    /// Waits for the next message up to `timeout`; `None` when it does not come.
    pub(crate) fn receive_within(&self, timeout: Duration) -> Option<ToHost> {
        ready_within(&self.control, PollFlags::IN, timeout).then(|| self.receive())?
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.child.signal(signal);
    }

    /// Whether the keeper ends in time.
    pub(crate) fn ends_within(&self, timeout: Duration) -> bool {
        until(timeout, self.poll_interval, || self.child.has_ended())
    }

    /// There are no shims to wait for.
    #[expect(clippy::unused_self, reason = "callers are the same everywhere")]
    pub(crate) fn all_gone_within(&self, _timeout: Duration) -> bool {
        true
    }
}

/// `DONTWAIT` instead of `O_NONBLOCK`, which the reading thread would feel, too.
#[cfg(not(target_vendor = "apple"))]
const SEND_FLAGS: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);
#[cfg(target_vendor = "apple")]
const SEND_FLAGS: SendFlags = SendFlags::DONTWAIT;

fn read_frame(mut socket: &UnixStream) -> Option<Vec<u8>> {
    const LARGEST: usize = 4096;
    let mut head = [0; 4];
    socket.read_exact(&mut head).ok()?;
    let mut bytes = vec![0; (u32::from_le_bytes(head) as usize).min(LARGEST)];
    socket.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

/// The answer to a spawn, and what tells the worker's end if it was started.
pub(crate) enum Reply {
    Came(Answer, Option<OwnedFd>),
    /// The keeper is gone.
    Closed,
    TimedOut,
}

/// Waits for the answer to a spawn. The keeper closes the same socket when the worker's main process has ended.
pub(crate) fn await_answer(socket: &OwnedFd, timeout: Duration) -> Reply {
    if !ready_within(socket, PollFlags::IN, timeout) {
        return Reply::TimedOut;
    }
    let answer = socket.try_clone().ok().map(UnixStream::from).and_then(|socket| {
        let answer = Answer::decode(&read_frame(&socket)?)?;
        Some((answer, OwnedFd::from(socket)))
    });
    answer.map_or(Reply::Closed, |(answer, end)| Reply::Came(answer, Some(end)))
}

/// Runs the keeper's program from the state directory, in the run's own.
#[expect(clippy::disallowed_methods, reason = "the keeper is the one process that the host itself starts")]
fn launch(outfit: &Outfit<'_>, control: UnixStream) -> io::Result<(Child, Pid)> {
    use std::os::unix::process::CommandExt;
    let name = concat!("keeper-", env!("SNAKEPIT_KEEPER_HASH"));
    let kept = outfit.state.program(name, KEEPER);
    outfit.sink.tell_damage(&outfit.state.program_path(name), &kept);
    kept.map_err(|error| io::Error::other(error_chain(&error)))?;
    let mut keeper = Command::new(outfit.state.program_path(name));
    keeper
        .arg0(KEEPER_NAME)
        .arg(outfit.run.to_string())
        .arg(outfit.poll_interval.as_millis().min(LONGEST_POLL_MS).to_string())
        .current_dir(outfit.dir.path())
        .env_clear()
        .stdin(OwnedFd::from(control))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // Written just now: whoever was forked meanwhile, anywhere in the host, has it open for writing until its exec.
    let mut child = Err(io::ErrorKind::ExecutableFileBusy.into());
    until(BUSY_PATIENCE, Duration::from_millis(1), || {
        child = keeper.spawn();
        !matches!(&child, Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy)
    });
    let child = child?;
    let pid = Pid::new(child.id() as i32).ok_or_else(|| io::Error::other("a keeper without a pid"))?;
    Ok((Child { pid: pid.as_rustix(), unreaped: Arc::new(Mutex::new(Some(child))) }, pid))
}
