//! A fork bomb without a bound of its own: every process forks for ever, and every child leaves the session.
//! Each killed process makes room for another, so killing them one by one never ends. Use it only with a limit on
//! processes. `breed stay` or `breed leave`.

use std::time::{Duration, Instant};

use snakepit_proving::tag::TagMapping;

use crate::process::{self, ReadyDescriptor};

const LIFETIME: Duration = Duration::from_mins(1);

pub(crate) fn run(worn: &TagMapping, ready: ReadyDescriptor, args: &[&str]) {
    // SAFETY: with SIGCHLD ignored the kernel reaps our children; no handler is installed.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    let end = Instant::now() + LIFETIME;
    let fd = ready.fd();
    // The first refusal says that the limit is reached, and with it the bomb's full size.
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
    // Fails for the worker itself, which leads its group.
    let _ = rustix::process::setsid();
    while !worn.halted() && Instant::now() < end {
        // A child is itself such a loop, and no frame of its parent.
        // SAFETY: one thread, plain system calls.
        if unsafe { libc::fork() } == 0 {
            let _ = rustix::process::setsid();
        }
    }
    // SAFETY: leaves without running what the first of them registered.
    unsafe { libc::_exit(0) };
}
