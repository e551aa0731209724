//! Sixteen chains: each is a process that forks, leaves its session and dies, as fast as the machine can. A killer that
//! lists processes first is always too late.

use std::time::{Duration, Instant};

use snakepit_proving::deadline::let_pass;
use snakepit_proving::tag::TagMapping;

use crate::process::{self, ReadyDescriptor};

const CHAINS: usize = 16;
const LIFETIME: Duration = Duration::from_mins(1);
const SLOW: Duration = Duration::from_millis(20);

pub(crate) fn run(worn: &TagMapping, ready: ReadyDescriptor) {
    // SAFETY: with SIGCHLD ignored, the kernel reaps our children. No handler is installed.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    let end = Instant::now() + LIFETIME;
    let fd = ready.fd();
    for _ in 0..CHAINS {
        process::fork(|| {
            ReadyDescriptor::inherited(fd).leave();
            run_chain(worn, end);
        });
    }
    ready.tell();
    process::rest(worn);
}

/// Runs the links of a chain: each child is the next link, and each parent ends at once.
///
/// A chain that has escaped to the machine's init slows down from then on. Some inits reap slowly, and a process table
/// full of dead links would harm the whole machine.
fn run_chain(worn: &TagMapping, end: Instant) {
    let mut escaped = false;
    while !worn.halted() && Instant::now() < end {
        escaped = escaped || rustix::process::getppid().is_some_and(rustix::process::Pid::is_init);
        if escaped {
            let_pass(SLOW);
        }
        // SAFETY: one thread, plain system calls.
        match unsafe { libc::fork() } {
            // SAFETY: as above.
            0 => _ = unsafe { libc::setsid() },
            // At the limit of processes, the link itself goes on.
            -1 => {}
            // SAFETY: as above.
            _ => unsafe { libc::_exit(0) },
        }
    }
}
