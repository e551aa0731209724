//! A worker that removes its parent-death signal but keeps the marker.

use snakepit_proving::tag::TagMapping;

use crate::process::{self, ReadyDescriptor};

pub(crate) fn run(worn: &TagMapping, ready: ReadyDescriptor) {
    // SAFETY: a plain system call on numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, 0) };
    ready.tell();
    process::rest(worn);
}
