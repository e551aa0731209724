//! The host's link to one keeper: its start, the socket, and its end.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
pub(crate) use std::process::Child as KeeperChild;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};
use rustix::pipe::PipeFlags;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::process::wait::ready_within;
use crate::state::file_limit::{self, SignalBlock};
use crate::{Pid, RunId};

use super::keeper_setup::{
    KEEPER_FILE, KEEPER_NAME, KEEPER_PROGRAM, KeeperSetup, SEND_TIMEOUT, SpawnReply, send_some,
};
use super::wire::{MAX_INLINE, MAX_ORDERS, SpawnAnswer, ToHost, ToKeeper};

/// The link to one keeper.
#[derive(Debug)]
pub(crate) struct KeeperLink {
    control: OwnedFd,
    pidfd: OwnedFd,
    pub(crate) pid: Pid,
    /// The other end closes once the keeper and all of its shims are gone.
    liveness: OwnedFd,
}

impl KeeperLink {
    /// Starts a keeper. The calling thread must outlive the keeper: in the tier `namespace`, a keeper dies with the
    /// thread that started it.
    pub(crate) fn start(setup: KeeperSetup<'_>) -> io::Result<(Self, KeeperChild)> {
        let (control, keeper_end) = packet_pair()?;
        let (liveness, liveness_end) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let mut child = launch(&setup, keeper_end)?;
        let begin = || -> io::Result<Self> {
            let pid = Pid::new(child.id() as i32)
                .ok_or_else(|| io::Error::other("the keeper was started, but has no pid"))?;
            let pidfd = pidfd_open(pid.as_rustix(), PidfdFlags::empty())?;
            let host = pidfd_open(rustix::process::getpid(), PidfdFlags::empty())?;
            let link = Self { control, pidfd, pid, liveness };
            let mut fds = vec![setup.lock, setup.dir.fd().as_fd(), host.as_fd(), liveness_end.as_fd()];
            fds.extend(setup.cgroup.as_ref().map(AsFd::as_fd));
            link.send(&ToKeeper::Init { init: setup.init }.encode(), &fds)?;
            Ok(link)
        };
        match begin() {
            Ok(link) => Ok((link, child)),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Sends a command to start. Returns the socket for the answer. Orders too large for a packet travel as a
    /// descriptor.
    pub(crate) fn send_orders(
        &self,
        key: u64,
        worker: Vec<u8>,
        orders: Vec<u8>,
        fds: &[OwnedFd],
    ) -> io::Result<OwnedFd> {
        let (answer, keeper_end) = packet_pair()?;
        let carrier = (orders.len() > MAX_INLINE).then(|| memfd("snakepit-orders", &orders)).transpose()?;
        let orders = if carrier.is_some() { Vec::new() } else { orders };
        let fds: Vec<_> =
            std::iter::once(&keeper_end).chain(carrier.as_ref()).chain(fds).map(AsFd::as_fd).collect();
        self.send(&ToKeeper::Spawn { key, worker, orders }.encode(), &fds)?;
        Ok(answer)
    }

    /// Sends one message. Waits while the socket is full, and gives up on a keeper that does not read for a long time.
    pub(crate) fn send(&self, message: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        send_some(&self.control, message, fds, Instant::now() + SEND_TIMEOUT).map(drop)
    }

    /// Waits for the keeper's next message. Returns `None` if the keeper is gone.
    pub(crate) fn receive(&self) -> Option<ToHost> {
        receive(&self.control).and_then(|(bytes, _)| ToHost::decode(&bytes))
    }

    /// Waits up to `timeout` for the next message. Returns `None` if no message comes.
    pub(crate) fn receive_within(&self, timeout: Duration) -> Option<ToHost> {
        ready_within(&self.control, PollFlags::IN, timeout).then(|| self.receive())?
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let _ = pidfd_send_signal(&self.pidfd, signal);
    }

    /// Waits up to `timeout` for the keeper's end. Returns whether the keeper has ended.
    pub(crate) fn ends_within(&self, timeout: Duration) -> bool {
        ready_within(&self.pidfd, PollFlags::IN, timeout)
    }

    /// Waits up to `timeout` until the keeper and all of its shims are gone. Returns whether they are gone.
    pub(crate) fn all_gone_within(&self, timeout: Duration) -> bool {
        ready_within(&self.liveness, PollFlags::IN, timeout)
    }
}

fn packet_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Waits for the answer to a spawn.
pub(crate) fn await_answer(socket: &OwnedFd, timeout: Duration) -> SpawnReply {
    if !ready_within(socket, PollFlags::IN, timeout) {
        return SpawnReply::TimedOut;
    }
    match receive(socket) {
        Some((bytes, fd)) => {
            SpawnAnswer::decode(&bytes).map_or(SpawnReply::Closed, |answer| SpawnReply::Came(answer, fd))
        }
        None => SpawnReply::Closed,
    }
}

/// Receives one packet. Returns `None` if the other end is closed.
fn receive(socket: &OwnedFd) -> Option<(Vec<u8>, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut bytes = [0; 256];
    loop {
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut slices = [IoSliceMut::new(&mut bytes)];
        let length = match rustix::net::recvmsg(socket, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
        {
            Ok(received) if received.bytes > 0 => received.bytes,
            // A peer that ended with unread messages causes CONNRESET, once, before its last messages.
            Err(Errno::INTR | Errno::CONNRESET) => continue,
            Ok(_) | Err(_) => return None,
        };
        let fd = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
            _ => None,
        });
        return Some((bytes[..length].to_vec(), fd));
    }
}

/// Returns a descriptor of the keeper's program that can be executed.
pub(crate) fn program() -> io::Result<OwnedFd> {
    memfd(KEEPER_NAME, KEEPER_PROGRAM)
}

fn memfd(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    if bytes.len() > MAX_ORDERS {
        return Err(Errno::TOOBIG.into());
    }
    // Kernels before 6.3 do not know EXEC and reject it. There, every memfd can be executed.
    let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::EXEC)
        .or_else(|_| rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC))?;
    let _blocked = SignalBlock::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        match rustix::io::write(&fd, rest) {
            Ok(written) => rest = &rest[written..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(file_limit::in_words(errno.into())),
        }
    }
    Ok(fd)
}

/// Runs the keeper's program from the state directory or, if that may not be executed, from memory.
fn launch(setup: &KeeperSetup<'_>, control: OwnedFd) -> io::Result<KeeperChild> {
    let spare = control.try_clone()?;
    let kept = setup.state.program(KEEPER_FILE, KEEPER_PROGRAM);
    setup.sink.report_damage(&setup.state.program_path(KEEPER_FILE), &kept);
    let from_file = kept.ok().and_then(|(file, _)| run(&file, setup.run, control).ok());
    from_file.map_or_else(|| run(&program()?, setup.run, spare), Ok)
}

#[expect(clippy::disallowed_methods, reason = "the keeper is the only process that the host itself starts")]
fn run(program: &OwnedFd, run: RunId, control: OwnedFd) -> io::Result<KeeperChild> {
    use std::os::unix::process::CommandExt;
    Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()))
        .arg0(KEEPER_NAME)
        .arg(run.to_string())
        .env_clear()
        .stdin(control)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}
