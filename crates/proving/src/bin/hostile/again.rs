//! Executes this program again with an empty environment. The tag is passed as a descriptor.

use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use snakepit_proving::tag::TagMapping;

use crate::process::{self, ReadyDescriptor};

/// Replaces this process by a fresh image without an environment, which continues as `kind`.
pub(crate) fn depart(worn: &TagMapping, ready: &ReadyDescriptor, kind: &str) -> ! {
    for fd in [Some(worn.fd()), ready.fd()].into_iter().flatten() {
        // SAFETY: both descriptors are open until the exec.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty()).expect("keep a descriptor across exec");
    }
    let ready = ready.fd().map_or_else(|| "-".to_owned(), |fd| fd.to_string());
    let program = std::env::current_exe().expect("this program's path");
    let error = Command::new(program)
        .args(["again", &worn.fd().to_string(), &ready, kind])
        .env_clear()
        .current_dir("/")
        .exec();
    panic!("exec: {error}");
}

/// Continues in the fresh image: maps the tag again and closes every descriptor. Nothing then names the run.
pub(crate) fn arrive(tag: &str, ready: &str, kind: &str) {
    let fd: RawFd = tag.parse().expect("the tag's descriptor");
    let _worn = TagMapping::put_on_again(fd).expect("put the tag on again");
    ReadyDescriptor::parse(ready).tell();
    // SAFETY: nothing in this process uses a descriptor after this.
    unsafe { libc::close_range(0, u32::MAX, 0) };
    match kind {
        "rest" => process::rest_untagged(),
        _ => panic!("no such second life: {kind}"),
    }
}
