//! Starts a daemon whose marker processes of the same user cannot read, because it is not dumpable.

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
