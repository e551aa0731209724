//! The lock for clearing dead runs: one host clears them for all, and the others wait.
//!
//! The lock is on the directory of the runs. It is released when its holder ends, for whatever reason.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// The lock, held until this value is dropped.
#[derive(Debug)]
pub(crate) struct SweepLock(OwnedFd);

impl Drop for SweepLock {
    fn drop(&mut self) {
        // Closing is not enough: a process that was forked meanwhile also has the descriptor.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// Waits for the lock. Returns `None` if another process holds it longer than `timeout`.
pub(crate) fn wait_for(dir: OwnedFd, timeout: Duration) -> io::Result<Option<SweepLock>> {
    match flock(&dir, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => return Ok(Some(SweepLock(dir))),
        Err(Errno::WOULDBLOCK) if !timeout.is_zero() => {}
        Err(Errno::WOULDBLOCK) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    }
    // The system cannot wait for a lock with a time limit, so a thread waits. If the limit comes first, the thread
    // takes the lock eventually and releases it at once.
    let (tell, told) = sync_channel(1);
    let waiter = move || {
        let locked = rustix::io::retry_on_intr(|| flock(&dir, FlockOperation::LockExclusive));
        let _ = tell.send(locked.map(|()| SweepLock(dir)));
    };
    std::thread::Builder::new().name("snakepit-waiter".to_owned()).spawn(waiter)?;
    match told.recv_timeout(timeout) {
        Ok(lock) => Ok(Some(lock?)),
        Err(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_passes_on_when_dropped_and_waiting_for_it_is_bounded() {
        let home = tempfile::tempdir().unwrap();
        let open = || OwnedFd::from(std::fs::File::open(home.path()).unwrap());
        let first = wait_for(open(), Duration::ZERO).unwrap().unwrap();
        assert!(wait_for(open(), Duration::ZERO).unwrap().is_none());
        assert!(wait_for(open(), Duration::from_millis(20)).unwrap().is_none());
        let dir = open();
        let waiter = std::thread::spawn(move || wait_for(dir, Duration::from_secs(30)).unwrap());
        drop(first);
        assert!(waiter.join().unwrap().is_some());
    }

    #[test]
    fn a_copy_of_the_descriptor_does_not_hold_the_lock() {
        let home = tempfile::tempdir().unwrap();
        let open = || OwnedFd::from(std::fs::File::open(home.path()).unwrap());
        let first = wait_for(open(), Duration::ZERO).unwrap().unwrap();
        // A forked process would have such a copy.
        let _copy = first.0.try_clone().unwrap();
        drop(first);
        assert!(wait_for(open(), Duration::ZERO).unwrap().is_some());
    }
}
