//! Creates a PID namespace and a process that enters it from outside and is left there. Its parent is in one namespace,
//! and its reaper in another.

use std::io;

use snakepit_proving::tag::TagMapping;

use crate::process::{self, ReadyDescriptor};

const NAMESPACES: i32 = libc::CLONE_NEWUSER | libc::CLONE_NEWPID;

pub(crate) fn run(worn: &TagMapping, ready: ReadyDescriptor) {
    let fd = ready.fd();
    let (here, there) = std::io::pipe().expect("a pipe");
    process::fork(move || {
        // SAFETY: a plain system call on numbers. This process has one thread.
        check(unsafe { libc::unshare(NAMESPACES) });
        let init = process::fork(|| {
            ReadyDescriptor::inherited(fd).tell();
            process::rest(worn);
        });
        io::Write::write_all(&mut &there, &init.to_ne_bytes()).expect("tell who the init is");
        ReadyDescriptor::inherited(fd).tell();
        process::rest(worn);
    });
    let mut init = [0; 4];
    io::Read::read_exact(&mut &here, &mut init).expect("hear who the init is");
    process::fork(|| {
        let init = rustix::process::Pid::from_raw(i32::from_ne_bytes(init)).expect("a pid");
        let pidfd =
            rustix::process::pidfd_open(init, rustix::process::PidfdFlags::empty()).expect("pidfd_open");
        // SAFETY: a plain system call on a descriptor that is open.
        check(unsafe { libc::setns(std::os::fd::AsRawFd::as_raw_fd(&pidfd), NAMESPACES) });
        process::fork(|| {
            process::setsid();
            process::fork(|| {
                ReadyDescriptor::inherited(fd).tell();
                process::rest(worn);
            });
        });
    });
    ready.tell();
    process::rest(worn);
}

fn check(result: i32) {
    assert!(result == 0, "{}", io::Error::last_os_error());
}
