//! Cgroups as keeper and shims use them: the run's cgroup, and one cgroup per worker below it.
//!
//! One write kills all processes in a worker's cgroup. A write to the run's cgroup kills the processes of all workers.

use std::ffi::CString;
use std::fs::File;
use std::io::{ErrorKind, Result, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use crate::sys::{self, PollFd};

/// The most directories that a removal visits, however many a worker has created.
const MAX_REMOVED: usize = 10_000;

/// The cgroup of one worker.
pub(crate) struct WorkerCgroup {
    run: RawFd,
    name: CString,
    pub(crate) dir: OwnedFd,
}

impl WorkerCgroup {
    /// Creates the cgroup of the shim with this serial number. Returns `None` if a limit or the cgroup's type forbids
    /// it: the run's cgroup then serves.
    pub(crate) fn make(run: RawFd, serial: u64) -> Option<Self> {
        let name = name(serial);
        match sys::make_dir_at(run, &name) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return None,
            _ => {}
        }
        let dir = sys::open_at(run, &name, sys::O_RDONLY).ok()?;
        Some(Self { run, name, dir })
    }

    pub(crate) fn kill(&self) {
        kill(self.dir.as_raw_fd());
    }

    /// Removes the cgroup and everything below it. Returns false if a process is left in it.
    pub(crate) fn remove(&self) -> bool {
        remove_child(self.run, &self.name)
    }
}

fn name(serial: u64) -> CString {
    CString::new(serial.to_string()).unwrap_or_default()
}

/// Puts the calling process into a cgroup.
pub(crate) fn join(dir: RawFd) -> Result<()> {
    let procs = sys::open_at(dir, c"cgroup.procs", sys::O_WRONLY)?;
    File::from(procs).write_all(b"0")
}

/// Kills all processes in a cgroup and below it, at once.
pub(crate) fn kill(dir: RawFd) {
    if let Ok(file) = sys::open_at(dir, c"cgroup.kill", sys::O_WRONLY) {
        let _ = File::from(file).write_all(b"1");
    }
}

/// Kills all processes in the cgroup of the shim with this serial number.
pub(crate) fn kill_worker(run: RawFd, serial: u64) {
    if let Ok(dir) = sys::open_at(run, &name(serial), sys::O_RDONLY) {
        kill(dir.as_raw_fd());
    }
}

/// Removes the cgroup of the shim with this serial number.
pub(crate) fn remove_worker(run: RawFd, serial: u64) -> bool {
    remove_child(run, &name(serial))
}

fn remove_child(run: RawFd, name: &CString) -> bool {
    match sys::remove_dir_at(run, name) {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::NotFound => true,
        Err(_) => path(run).is_ok_and(|run| remove_tree(&run.join(name.to_string_lossy().as_ref()))),
    }
}

/// Returns the path of a cgroup.
pub(crate) fn path(dir: RawFd) -> Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{dir}"))
}

/// Removes a cgroup and the cgroups below it, innermost first. Returns false if the cgroup itself is left.
pub(crate) fn remove_tree(path: &Path) -> bool {
    if is_removed(path) {
        return true;
    }
    let mut found = vec![path.to_owned()];
    let mut next = 0;
    while next < found.len() && found.len() < MAX_REMOVED {
        if let Ok(entries) = std::fs::read_dir(&found[next]) {
            let below = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            found.extend(below.map(|entry| entry.path()));
        }
        next += 1;
    }
    let mut removed = false;
    for path in found.iter().rev() {
        removed = is_removed(path);
    }
    removed
}

fn is_removed(path: &Path) -> bool {
    std::fs::remove_dir(path).map_or_else(|error| error.kind() == ErrorKind::NotFound, |()| true)
}

/// Waits up to `timeout_ms` for a change of the cgroup's members.
pub(crate) fn await_change(dir: RawFd, timeout_ms: i32) {
    if let Ok(events) = sys::open_at(dir, c"cgroup.events", sys::O_RDONLY) {
        let mut fds = [PollFd { fd: events.as_raw_fd(), events: sys::POLLPRI, revents: 0 }];
        let _ = sys::poll_any(&mut fds, timeout_ms);
    }
}
