//! A daemon that nobody of its own user may look into: its marker is there, but cannot be read.

use snakepit_proving::tag::TagMapping;

use crate::process::{self, ReadyDescriptor};

pub(crate) fn run(worn: &TagMapping, ready: ReadyDescriptor) {
    let fd = ready.fd();
    process::fork(|| {
        process::setsid();
        process::fork(|| {
            // SAFETY: a plain system call on numbers.
            unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) };
            ReadyDescriptor::inherited(fd).tell();
            process::rest(worn);
        });
    });
    ready.tell();
    process::rest(worn);
}
