//! An unbounded fork bomb: every process forks forever, and every child leaves the session. Each killed process makes
//! room for another, so killing them one by one never ends. Use it only with a limit on processes. Usage: `breed stay`
//! or `breed leave`.

use std::time::{Duration, Instant};

use snakepit_proving::tag::TagMapping;

use crate::process::{self, ReadyDescriptor};

const LIFETIME: Duration = Duration::from_mins(1);

pub(crate) fn run(worn: &TagMapping, ready: ReadyDescriptor, args: &[&str]) {
    // SAFETY: with SIGCHLD ignored, the kernel reaps our children. No handler is installed.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    let end = Instant::now() + LIFETIME;
    let fd = ready.fd();
    // The first refused fork shows that the limit is reached and the bomb has its full size.
    while process::try_fork(|| {
        ReadyDescriptor::inherited(fd).leave();
        breed(worn, end);
    }) {}
    ready.tell();
    match args {
        ["leave"] => std::process::exit(5),
        ["stay"] => breed(worn, end),
        _ => panic!("breed stay, or breed leave"),
    }
}

fn breed(worn: &TagMapping, end: Instant) {
    // This fails for the worker itself, which leads its group.
    let _ = rustix::process::setsid();
    while !worn.halted() && Instant::now() < end {
        // A child becomes such a loop itself, instead of a frame of its parent.
        // SAFETY: one thread, plain system calls.
        if unsafe { libc::fork() } == 0 {
            let _ = rustix::process::setsid();
        }
    }
    // SAFETY: leaves without running what the first process registered.
    unsafe { libc::_exit(0) };
}
