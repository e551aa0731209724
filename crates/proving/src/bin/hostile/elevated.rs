//! Leaves a child that becomes root for good through a setuid program, so that an unprivileged custody may not signal
//! it, and exits with 5. Usage: `elevated PROGRAM`, where PROGRAM is this program, owned by root, with the setuid bit.
//! With `grouped` after it, the child stays in the worker's group.

use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use snakepit_proving::tag::TagMapping;

use crate::process::{self, ReadyDescriptor};

pub(crate) fn run(worn: &TagMapping, ready: ReadyDescriptor, args: &[&str]) {
    let (program, grouped) = match args {
        [program] => (program, false),
        [program, "grouped"] => (program, true),
        _ => panic!("elevated PROGRAM [grouped]"),
    };
    let (mut heard, mut told) = ([0; 1], [0; 2]);
    // SAFETY: pipe writes two descriptors into the array.
    assert_eq!(unsafe { libc::pipe(told.as_mut_ptr()) }, 0, "pipe");
    let fd = ready.fd();
    process::fork(|| {
        if !grouped {
            process::setsid();
        }
        // SAFETY: the descriptor is open until the exec.
        let tag = unsafe { BorrowedFd::borrow_raw(worn.fd()) };
        rustix::io::fcntl_setfd(tag, rustix::io::FdFlags::empty()).expect("keep the tag across exec");
        ReadyDescriptor::inherited(fd).leave();
        let error =
            Command::new(program).args(["become-root", &worn.fd().to_string(), &told[1].to_string()]).exec();
        panic!("exec: {error}");
    });
    // SAFETY: reads one byte into a valid buffer from our own pipe.
    unsafe { libc::read(told[0], heard.as_mut_ptr().cast(), 1) };
    ready.tell();
    std::process::exit(5);
}

/// Runs in the setuid program: becomes root with all three user ids.
pub(crate) fn become_root(tag: &str, tell: &str) {
    let worn =
        TagMapping::put_on_again(tag.parse().expect("the tag's descriptor")).expect("put the tag on again");
    // SAFETY: a system call on numbers.
    assert_eq!(unsafe { libc::setresuid(0, 0, 0) }, 0, "become root: {}", std::io::Error::last_os_error());
    let tell: RawFd = tell.parse().expect("a descriptor");
    // SAFETY: writes one byte from a valid buffer to a pipe that was passed to us.
    unsafe { libc::write(tell, b"r".as_ptr().cast(), 1) };
    process::rest(&worn);
}
