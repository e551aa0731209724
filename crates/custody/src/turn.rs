//! Whose turn it is to clear dead runs: one host does it for all, and the others wait until it is done.
//!
//! The turn is a lock on the directory of the runs, so that it ends with its holder, however that ends.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// The turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn(#[expect(dead_code, reason = "held for its lock alone")] OwnedFd);

/// Waits for the turn; `None` if somebody else has it for longer than that.
pub(crate) fn wait_for(dir: OwnedFd, timeout: Duration) -> io::Result<Option<Turn>> {
    match flock(&dir, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => return Ok(Some(Turn(dir))),
        Err(Errno::WOULDBLOCK) if !timeout.is_zero() => {}
        Err(Errno::WOULDBLOCK) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    }
    // No lock of the system can be waited for with a limit, so a thread does. If the limit comes first, the thread
    // takes the turn one day and gives it back at once.
    let (tell, told) = sync_channel(1);
    let waiter = move || {
        let locked = rustix::io::retry_on_intr(|| flock(&dir, FlockOperation::LockExclusive));
        let _ = tell.send(locked.map(|()| Turn(dir)));
    };
    std::thread::Builder::new().name("snakepit-turn".to_owned()).spawn(waiter)?;
    match told.recv_timeout(timeout) {
        Ok(turn) => Ok(Some(turn?)),
        Err(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_turn_passes_on_when_its_holder_drops_it_and_waiting_has_an_end() {
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
}
