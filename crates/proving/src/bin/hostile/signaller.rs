//! Sends every signal that can be blocked to its shim and to the shim's parent, then stays. In a namespace it sees only
//! the shim.

use snakepit_proving::CensusEntry;
use snakepit_proving::tag::TagMapping;

use crate::process::{self, ReadyDescriptor};

pub(crate) fn run(worn: &TagMapping, ready: ReadyDescriptor) {
    let shim = rustix::process::getppid().expect("a shim").as_raw_nonzero().get();
    let keeper = CensusEntry::read(shim).map_or(0, |found| found.parent);
    for pid in [shim, keeper].into_iter().filter(|pid| *pid > 0) {
        for signal in (1..=libc::SIGRTMAX()).filter(|signal| ![libc::SIGKILL, libc::SIGSTOP].contains(signal))
        {
            // SAFETY: they are our own shim and its keeper, which live as long as this process.
            let sent = unsafe { libc::kill(pid, signal) };
            // The kernel silently drops signals that init does not handle.
            assert_eq!(sent, 0, "signal {signal} to {pid}: {}", std::io::Error::last_os_error());
        }
    }
    ready.tell();
    process::rest(worn);
}
