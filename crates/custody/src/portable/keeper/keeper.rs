//! The keeper's loop: it hears the host, looks after its wards, and sees the run to its end.
//!
//! The host's end shows in two ways, either one enough: their socket ends, or the keeper has another parent. The
//! second one is for a forked copy of the host that still holds the socket; it has to be looked for.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::io::{Error, ErrorKind, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use crate::birth::{Failure, KEEPER_IGNORES};
use crate::inbox::{self, Inbox};
use crate::look::{self, Look};
use crate::numbers::{Limit, POLLIN, POLLOUT};
use crate::pen::Pen;
use crate::record::{Kind, Process};
use crate::sys;
use crate::wards::Ward;
use crate::wire::{Init, Reach, Stage, ToHost, ToKeeper};

/// Serves the host on descriptor 0 until the run is over.
pub(crate) fn serve(poll_ms: c_int) -> ! {
    let host = sys::parent_pid();
    sys::close_inherited();
    // Whatever the host ignores or blocks by now is not for its workers; see `birth`.
    (1..=64).for_each(sys::restore_default);
    KEEPER_IGNORES.into_iter().for_each(sys::ignore);
    sys::set_blocked(0);
    let Ok(control) = settle_descriptors() else { sys::exit(1) };
    match Keeper::begin(&control, host, poll_ms) {
        Ok(mut keeper) => keeper.run(),
        Err((stage, error)) => {
            let message = ToHost::Unable { stage, errno: sys::errno(&error) };
            let _ = inbox::send(&control, &message.encode());
            sys::exit(1)
        }
    }
}

/// Moves the control socket up and puts /dev/null on 0, 1 and 2, so that no other descriptor lands there.
fn settle_descriptors() -> std::io::Result<UnixStream> {
    let control = sys::duplicate_above(0, 3)?;
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    for standard in 0..3 {
        sys::duplicate_to(null.as_raw_fd(), standard)?;
    }
    // SAFETY: the copy was made just now and belongs to nobody else.
    Ok(unsafe { UnixStream::from_raw_fd(control) })
}

/// Whether the run goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Course {
    Serving,
    /// The host asked for the end and listens until it comes.
    Finishing,
    /// The host is gone.
    Orphaned,
}

/// What every worker is given of the host's surroundings.
pub(crate) struct Ground {
    pub(crate) caller_session: bool,
    pub(crate) ignored: u64,
    pub(crate) blocked: u64,
    /// The limit that the host had, if the keeper could raise its own.
    pub(crate) open_files: Option<Limit>,
}

pub(crate) struct Keeper {
    control: UnixStream,
    inbox: Inbox,
    /// Readable when a child has something to tell; its other end rings.
    bell: UnixStream,
    _rope: UnixStream,
    /// Held for as long as the keeper lives.
    _lock: OwnedFd,
    host: c_int,
    poll_ms: c_int,
    pub(crate) ground: Ground,
    pub(crate) pen: Pen,
    pub(crate) wards: BTreeMap<u64, Ward>,
    /// Whether a worker has ended and somebody of its group has not.
    pub(crate) lingering: bool,
    pub(crate) course: Course,
}

impl Keeper {
    fn begin(control: &UnixStream, host: c_int, poll_ms: c_int) -> Result<Self, Failure> {
        let request = |error| (Stage::Request, error);
        let control = control.try_clone().map_err(request)?;
        let mut inbox = Inbox::default();
        let (bytes, fds) = loop {
            if let Some(frame) = inbox.next().map_err(request)? {
                break frame;
            }
            inbox.fill(&control).map_err(request)?;
        };
        let (Some(ToKeeper::Init(init)), Some(lock)) = (ToKeeper::decode(&bytes), fds.into_iter().next())
        else {
            return Err(request(sys::not_understood()));
        };
        let session = if init.caller_session { sys::new_group() } else { sys::new_session() };
        session.map_err(|error| (Stage::Session, error))?;
        let pen = open_ledger(&init).map_err(|error| (Stage::Ledger, error))?;
        let _ = std::env::set_current_dir("/");
        let kernel = |error: Error| (Stage::Kernel, error);
        let (bell, rope) = UnixStream::pair().map_err(kernel)?;
        for socket in [&control, &bell, &rope] {
            socket.set_nonblocking(true).map_err(kernel)?;
        }
        sys::ring_on_child(rope.as_raw_fd());
        // One for each worker is held, which is more than some systems let a program have unasked.
        let open_files = sys::open_files()
            .ok()
            .filter(|limit| sys::set_open_files(Limit { soft: limit.hard, ..*limit }).is_ok());
        let ground = Ground {
            caller_session: init.caller_session,
            ignored: init.ignored,
            blocked: init.blocked,
            open_files,
        };
        Ok(Self {
            control,
            inbox,
            bell,
            _rope: rope,
            _lock: lock,
            host,
            poll_ms: poll_ms.max(1),
            ground,
            pen,
            wards: BTreeMap::new(),
            lingering: false,
            course: Course::Serving,
        })
    }

    fn run(&mut self) -> ! {
        self.tell(&ToHost::Ready);
        loop {
            if self.course != Course::Serving && self.wards.is_empty() {
                self.pen.remove();
                sys::exit(0);
            }
            let mut fds = [sys::waiting(&self.bell, POLLIN), sys::waiting(&self.control, POLLIN)];
            // Nobody listens to a host that is gone: its socket would be ready for ever.
            let count = if self.course == Course::Orphaned { 1 } else { 2 };
            sys::poll_any(&mut fds[..count], self.poll_ms);
            let rung = fds[0].revents != 0;
            if rung {
                // What is left of many rings rings again.
                let _ = self.bell.read(&mut [0; 256]);
            }
            if fds[1].revents != 0 {
                self.hear_host();
            }
            if self.host_is_gone() {
                self.orphaned();
            }
            if self.course != Course::Serving {
                self.press();
            }
            if rung || self.lingering {
                self.look_after();
            }
        }
    }

    fn host_is_gone(&self) -> bool {
        sys::parent_pid() != self.host
    }

    fn hear_host(&mut self) {
        let mut heard = self.inbox.fill(&self.control);
        while heard.is_ok() {
            match self.inbox.next() {
                Ok(Some((bytes, fds))) => self.obey(&bytes, fds),
                Ok(None) => return,
                Err(error) => heard = Err(error),
            }
        }
        self.orphaned();
    }

    fn obey(&mut self, bytes: &[u8], fds: Vec<OwnedFd>) {
        match ToKeeper::decode(bytes) {
            Some(ToKeeper::Spawn { key, worker, orders }) => self.spawn(key, &worker, &orders, fds),
            Some(ToKeeper::Signal { key, signal, reach }) => {
                if let Some(ward) = self.wards.get(&key) {
                    match reach {
                        Reach::Group => ward.group.signal(signal),
                        Reach::Process => ward.group.signal_leader(signal),
                    }
                }
            }
            Some(ToKeeper::Kill { key }) => {
                if let Some(ward) = self.wards.get(&key) {
                    ward.group.kill();
                }
            }
            Some(ToKeeper::Finish) => {
                if self.course == Course::Serving {
                    self.course = Course::Finishing;
                }
            }
            // Not a message of ours: the host is not the one that we were built with.
            Some(ToKeeper::Init(_)) | None => self.orphaned(),
        }
    }

    fn orphaned(&mut self) {
        self.course = Course::Orphaned;
    }

    /// KILL to everybody that is left; repeated for as long as there is somebody.
    fn press(&self) {
        for ward in self.wards.values() {
            ward.group.kill();
        }
    }

    /// Tells the host, waiting for room; gives up only when the host is gone.
    pub(crate) fn tell(&mut self, message: &ToHost) {
        if self.course == Course::Orphaned {
            return;
        }
        let bytes = message.encode();
        let mut frame = (bytes.len() as u32).to_le_bytes().to_vec();
        frame.extend_from_slice(&bytes);
        let mut rest = frame.as_slice();
        while !rest.is_empty() {
            match std::io::Write::write(&mut &self.control, rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock && !self.host_is_gone() => {
                    sys::poll_any(&mut [sys::waiting(&self.control, POLLOUT)], self.poll_ms);
                }
                Err(_) => return self.orphaned(),
            }
        }
    }
}

fn open_ledger(init: &Init) -> std::io::Result<Pen> {
    let mut pen = Pen::open(init.next_slot, init.sync, init.boot, init.tier as u8)?;
    let mut record = pen.record(Kind::Keeper, 0, &init.run);
    record.main = identity(sys::pid());
    pen.append_head(&record)?;
    Ok(pen)
}

/// A process for the record: without its start time where the system does not tell it.
pub(crate) fn identity(pid: c_int) -> Process {
    let start = match look::at_process(pid) {
        Look::Started(start) => start,
        Look::Unknown | Look::Gone => 0,
    };
    Process { pid, start, pidfs: 0 }
}
