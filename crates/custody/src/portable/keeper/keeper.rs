//! The keeper's loop: it listens to the host, watches the workers, and ends the run.
//!
//! Two signs show that the host is gone: the socket ends, or the keeper gets another parent. The second sign has to be
//! polled. It is needed if a forked copy of the host still holds the socket.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::io::{Error, ErrorKind, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use crate::frames::{self, FrameReader};
use crate::gate::{KEEPER_IGNORES, StageError};
use crate::ledger::LedgerWriter;
use crate::libc_abi::{POLLIN, POLLOUT, ResourceLimit};
use crate::process_state::{self, PidState};
use crate::record::{ProcessIdentity, RecordKind};
use crate::sys;
use crate::wire::{KeeperInit, SignalReach, SpawnStage, ToHost, ToKeeper};
use crate::workers::KeptWorker;

/// Serves the host on descriptor 0 until the run is over.
pub(crate) fn serve(poll_ms: c_int) -> ! {
    let host = sys::parent_pid();
    sys::close_inherited();
    // Workers do not inherit the signals that the host ignores or blocks now; see `gate`.
    (1..=64).for_each(sys::restore_default);
    KEEPER_IGNORES.into_iter().for_each(sys::ignore);
    sys::set_blocked(0);
    let Ok(control) = settle_descriptors() else { sys::exit(1) };
    match Keeper::begin(&control, host, poll_ms) {
        Ok(mut keeper) => keeper.run(),
        Err((stage, error)) => {
            let message = ToHost::Unable { stage, errno: sys::errno(&error) };
            let _ = frames::send(&control, &message.encode());
            sys::exit(1)
        }
    }
}

/// Moves the control socket up and opens /dev/null on 0, 1 and 2, so that no other descriptor gets these numbers.
fn settle_descriptors() -> std::io::Result<UnixStream> {
    let control = sys::duplicate_above(0, 3)?;
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    for standard in 0..3 {
        sys::duplicate_to(null.as_raw_fd(), standard)?;
    }
    // SAFETY: the copy was just made and has no other owner.
    Ok(unsafe { UnixStream::from_raw_fd(control) })
}

/// The phase of the run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunPhase {
    Serving,
    /// The host asked for the end of the run and waits for it.
    Finishing,
    /// The host is gone.
    Orphaned,
}

/// What every worker inherits from the host.
pub(crate) struct LaunchContext {
    pub(crate) caller_session: bool,
    pub(crate) ignored: u64,
    pub(crate) blocked: u64,
    /// The host's limit, if the keeper could raise its own.
    pub(crate) open_files: Option<ResourceLimit>,
}

pub(crate) struct Keeper {
    control: UnixStream,
    frames: FrameReader,
    /// Readable when a child has changed, because SIGCHLD writes to the other end.
    wake_reader: UnixStream,
    _wake_writer: UnixStream,
    /// Held as long as the keeper lives.
    _lock: OwnedFd,
    host: c_int,
    poll_ms: c_int,
    pub(crate) context: LaunchContext,
    pub(crate) ledger: LedgerWriter,
    pub(crate) workers: BTreeMap<u64, KeptWorker>,
    /// Whether the group of an ended worker still has living members.
    pub(crate) group_lingers: bool,
    pub(crate) phase: RunPhase,
}

impl Keeper {
    fn begin(control: &UnixStream, host: c_int, poll_ms: c_int) -> Result<Self, StageError> {
        let request = |error| (SpawnStage::Request, error);
        let control = control.try_clone().map_err(request)?;
        let mut frames = FrameReader::default();
        let (bytes, fds) = loop {
            if let Some(frame) = frames.next().map_err(request)? {
                break frame;
            }
            frames.fill(&control).map_err(request)?;
        };
        let (Some(ToKeeper::Init { init }), Some(lock)) = (ToKeeper::decode(&bytes), fds.into_iter().next())
        else {
            return Err(request(sys::not_understood()));
        };
        let session = if init.caller_session { sys::new_group() } else { sys::new_session() };
        session.map_err(|error| (SpawnStage::Session, error))?;
        let ledger = open_ledger(&init).map_err(|error| (SpawnStage::Ledger, error))?;
        let _ = std::env::set_current_dir("/");
        let kernel = |error: Error| (SpawnStage::Kernel, error);
        let (wake_reader, wake_writer) = UnixStream::pair().map_err(kernel)?;
        for socket in [&control, &wake_reader, &wake_writer] {
            socket.set_nonblocking(true).map_err(kernel)?;
        }
        sys::wake_on_child(wake_writer.as_raw_fd());
        // The keeper holds one descriptor per worker, which is more than some systems allow by default.
        let open_files = sys::open_files()
            .ok()
            .filter(|limit| sys::set_open_files(ResourceLimit { soft: limit.hard, ..*limit }).is_ok());
        let context = LaunchContext {
            caller_session: init.caller_session,
            ignored: init.ignored,
            blocked: init.blocked,
            open_files,
        };
        Ok(Self {
            control,
            frames,
            wake_reader,
            _wake_writer: wake_writer,
            _lock: lock,
            host,
            poll_ms: poll_ms.max(1),
            context,
            ledger,
            workers: BTreeMap::new(),
            group_lingers: false,
            phase: RunPhase::Serving,
        })
    }

    fn run(&mut self) -> ! {
        self.notify_host(&ToHost::Ready);
        loop {
            if self.phase != RunPhase::Serving && self.workers.is_empty() {
                self.ledger.remove();
                sys::exit(0);
            }
            let mut fds = [sys::waiting(&self.wake_reader, POLLIN), sys::waiting(&self.control, POLLIN)];
            // After the end of the host, its socket would always be ready.
            let count = if self.phase == RunPhase::Orphaned { 1 } else { 2 };
            sys::poll_any(&mut fds[..count], self.poll_ms);
            let woken = fds[0].revents != 0;
            if woken {
                // If bytes are left, the next poll returns at once.
                let _ = self.wake_reader.read(&mut [0; 256]);
            }
            if fds[1].revents != 0 {
                self.on_host_message();
            }
            if self.host_is_gone() {
                self.host_gone();
            }
            if self.phase != RunPhase::Serving {
                self.kill_rest();
            }
            if woken || self.group_lingers {
                self.check_workers();
            }
        }
    }

    fn host_is_gone(&self) -> bool {
        sys::parent_pid() != self.host
    }

    fn on_host_message(&mut self) {
        let mut heard = self.frames.fill(&self.control);
        while heard.is_ok() {
            match self.frames.next() {
                Ok(Some((bytes, fds))) => self.handle_message(&bytes, fds),
                Ok(None) => return,
                Err(error) => heard = Err(error),
            }
        }
        self.host_gone();
    }

    fn handle_message(&mut self, bytes: &[u8], fds: Vec<OwnedFd>) {
        match ToKeeper::decode(bytes) {
            Some(ToKeeper::Spawn { key, worker, orders }) => self.spawn(key, &worker, &orders, fds),
            Some(ToKeeper::Signal { key, signal, reach }) => {
                if let Some(worker) = self.workers.get(&key) {
                    match reach {
                        SignalReach::Group => worker.group.signal(signal),
                        SignalReach::Process => worker.group.signal_leader(signal),
                    }
                }
            }
            Some(ToKeeper::Kill { key }) => {
                if let Some(worker) = self.workers.get(&key) {
                    worker.group.kill();
                }
            }
            Some(ToKeeper::Finish) => {
                if self.phase == RunPhase::Serving {
                    self.phase = RunPhase::Finishing;
                }
            }
            // An unknown message means that this keeper was built with another version of the host.
            Some(ToKeeper::Init { .. }) | None => self.host_gone(),
        }
    }

    fn host_gone(&mut self) {
        self.phase = RunPhase::Orphaned;
    }

    /// Kills all remaining processes. The loop repeats this call until none is left.
    fn kill_rest(&self) {
        for worker in self.workers.values() {
            worker.group.kill();
        }
    }

    /// Sends a message to the host. Waits while the socket is full, and gives up only when the host is gone.
    pub(crate) fn notify_host(&mut self, message: &ToHost) {
        if self.phase == RunPhase::Orphaned {
            return;
        }
        let frame = frames::frame(&message.encode());
        let mut rest = frame.as_slice();
        while !rest.is_empty() {
            match std::io::Write::write(&mut &self.control, rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock && !self.host_is_gone() => {
                    sys::poll_any(&mut [sys::waiting(&self.control, POLLOUT)], self.poll_ms);
                }
                Err(_) => return self.host_gone(),
            }
        }
    }
}

fn open_ledger(init: &KeeperInit) -> std::io::Result<LedgerWriter> {
    let mut ledger = LedgerWriter::open(init.next_slot, init.sync, init.boot, init.tier as u8)?;
    let mut record = ledger.record(RecordKind::Keeper, 0, &init.run);
    record.main = identity(sys::pid());
    ledger.slots.append_head(&record)?;
    Ok(ledger)
}

/// Returns the identity of a process for its record. The start time is 0 if the system does not report it.
pub(crate) fn identity(pid: c_int) -> ProcessIdentity {
    let start = match process_state::at_process(pid) {
        PidState::Started(start) => start,
        PidState::Unknown | PidState::Gone => 0,
    };
    ProcessIdentity { pid, start, pidfs: 0 }
}
