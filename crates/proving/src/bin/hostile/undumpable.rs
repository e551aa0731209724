//! A daemon that nobody of its own user may look into: its marker is there, but cannot be read.

use snakepit_proving::tag::Worn;

use crate::process::{self, Ready};

pub(crate) fn run(worn: &Worn, ready: Ready) {
    let fd = ready.fd();
    process::fork(|| {
        process::setsid();
        process::fork(|| {
            // SAFETY: a plain system call on numbers.
            unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) };
            Ready::inherited(fd).tell();
            process::rest(worn);
        });
    });
    ready.tell();
    process::rest(worn);
}
