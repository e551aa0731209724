//! The host's link to one keeper, without pidfds, packet sockets and memfds.
//!
//! The link uses one stream socket with frames (see `portable/keeper/frames.rs`) and runs the keeper's program from the
//! state directory. It holds the keeper as a child, and never signals it once it is reaped.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::process::{Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::Pid;
use crate::process::identity::until;
use crate::process::wait::ready_within;
use crate::state::error_chain;

use super::keeper_setup::{
    KEEPER_FILE, KEEPER_NAME, KEEPER_PROGRAM, KeeperSetup, SEND_TIMEOUT, SpawnReply, send_some,
};
use super::wire::{MAX_ORDERS, SpawnAnswer, ToHost, ToKeeper};

/// How long another process may have the keeper's program open for writing.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The largest interval that fits into the keeper's poll call.
const LONGEST_POLL_MS: u128 = i32::MAX as u128;

/// The link to one keeper.
#[derive(Debug)]
pub(crate) struct KeeperLink {
    control: UnixStream,
    /// Locked while a message is sent, so that messages do not mix.
    sending: Mutex<()>,
    child: KeeperChild,
    poll_interval: Duration,
    pub(crate) pid: Pid,
}

/// The keeper as a child process. Shared, so that a sender of a signal knows that the keeper is not reaped.
#[derive(Clone, Debug)]
pub(crate) struct KeeperChild {
    pid: rustix::process::Pid,
    unreaped: Arc<Mutex<Option<std::process::Child>>>,
}

impl KeeperChild {
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

    #[expect(clippy::unnecessary_wraps, reason = "std's method has it; all systems share the callers")]
    pub(crate) fn kill(&mut self) -> io::Result<()> {
        self.signal(Signal::KILL);
        Ok(())
    }

    /// Waits for the end of the keeper and reaps it.
    pub(crate) fn wait(&mut self) -> io::Result<()> {
        // Waits without the lock and without reaping, because other threads may want to signal the keeper meanwhile.
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

impl KeeperLink {
    /// Starts a keeper.
    pub(crate) fn start(setup: KeeperSetup<'_>) -> io::Result<(Self, KeeperChild)> {
        debug_assert!(setup.cgroup.is_none());
        let (control, keeper_end) = UnixStream::pair()?;
        // A host that does not ignore SIGPIPE must not die if the keeper is gone.
        #[cfg(target_vendor = "apple")]
        rustix::net::sockopt::set_socket_nosigpipe(&control, true)?;
        let (mut child, pid) = launch(&setup, keeper_end)?;
        let poll_interval = setup.poll_interval;
        let link = Self { control, sending: Mutex::new(()), child: child.clone(), poll_interval, pid };
        match link.send(&ToKeeper::Init { init: setup.init }.encode(), &[setup.lock]) {
            Ok(()) => Ok((link, child)),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Sends a command to start. Returns the socket for the answer.
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

    /// Sends one message. Waits while the socket is full, and gives up on a keeper that does not read for a long time.
    pub(crate) fn send(&self, message: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let _alone = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        let deadline = Instant::now() + SEND_TIMEOUT;
        let mut head = (message.len() as u32).to_le_bytes().to_vec();
        head.extend_from_slice(&(fds.len() as u32).to_le_bytes());
        // The descriptors travel with the first byte, which is the head's, so nothing may come before it.
        let sent = send_some(&self.control, &head, fds, deadline)?;
        for mut rest in [&head[sent..], message] {
            while !rest.is_empty() {
                let sent = send_some(&self.control, rest, &[], deadline).inspect_err(|_| self.give_up())?;
                rest = &rest[sent..];
            }
        }
        Ok(())
    }

    /// Closes the connection after half a message, because the keeper could not understand anything that follows.
    fn give_up(&self) {
        let _ = self.control.shutdown(std::net::Shutdown::Both);
    }

    /// Waits for the keeper's next message. Returns `None` if the keeper is gone.
    pub(crate) fn receive(&self) -> Option<ToHost> {
        ToHost::decode(&read_frame(&self.control)?)
    }

    /// Waits up to `timeout` for the next message. Returns `None` if no message comes.
    pub(crate) fn receive_within(&self, timeout: Duration) -> Option<ToHost> {
        ready_within(&self.control, PollFlags::IN, timeout).then(|| self.receive())?
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.child.signal(signal);
    }

    /// Waits up to `timeout` for the keeper's end. Returns whether the keeper has ended.
    pub(crate) fn ends_within(&self, timeout: Duration) -> bool {
        until(timeout, self.poll_interval, || self.child.has_ended())
    }

    /// Returns true at once: there are no shims to wait for.
    #[expect(clippy::unused_self, reason = "all systems share the callers")]
    pub(crate) fn all_gone_within(&self, _timeout: Duration) -> bool {
        true
    }
}

fn read_frame(mut socket: &UnixStream) -> Option<Vec<u8>> {
    const LARGEST: usize = 4096;
    let mut head = [0; 4];
    socket.read_exact(&mut head).ok()?;
    let mut bytes = vec![0; (u32::from_le_bytes(head) as usize).min(LARGEST)];
    socket.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

/// Waits for the answer to a spawn. The keeper closes the same socket when the worker's main process has ended.
pub(crate) fn await_answer(socket: &OwnedFd, timeout: Duration) -> SpawnReply {
    if !ready_within(socket, PollFlags::IN, timeout) {
        return SpawnReply::TimedOut;
    }
    let answer = socket.try_clone().ok().map(UnixStream::from).and_then(|socket| {
        let answer = SpawnAnswer::decode(&read_frame(&socket)?)?;
        Some((answer, OwnedFd::from(socket)))
    });
    answer.map_or(SpawnReply::Closed, |(answer, end)| SpawnReply::Came(answer, Some(end)))
}

/// Runs the keeper's program from the state directory, in the directory of the run.
#[expect(clippy::disallowed_methods, reason = "the keeper is the only process that the host itself starts")]
fn launch(setup: &KeeperSetup<'_>, control: UnixStream) -> io::Result<(KeeperChild, Pid)> {
    use std::os::unix::process::CommandExt;
    let kept = setup.state.program(KEEPER_FILE, KEEPER_PROGRAM);
    setup.sink.report_damage(&setup.state.program_path(KEEPER_FILE), &kept);
    kept.map_err(|error| io::Error::other(error_chain(&error)))?;
    let mut keeper = Command::new(setup.state.program_path(KEEPER_FILE));
    keeper
        .arg0(KEEPER_NAME)
        .arg(setup.run.to_string())
        .arg(setup.poll_interval.as_millis().min(LONGEST_POLL_MS).to_string())
        .current_dir(setup.dir.path())
        .env_clear()
        .stdin(OwnedFd::from(control))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // The file was just written. If another thread forked meanwhile, the forked process has the file open for writing
    // until its exec.
    let mut child = Err(io::ErrorKind::ExecutableFileBusy.into());
    until(BUSY_TIMEOUT, Duration::from_millis(1), || {
        child = keeper.spawn();
        !matches!(&child, Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy)
    });
    let child = child?;
    let pid = Pid::new(child.id() as i32)
        .ok_or_else(|| io::Error::other("the keeper was started, but has no pid"))?;
    Ok((KeeperChild { pid: pid.as_rustix(), unreaped: Arc::new(Mutex::new(Some(child))) }, pid))
}
