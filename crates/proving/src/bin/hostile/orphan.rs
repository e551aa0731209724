//! A worker that removes its parent-death signal and sheds the marker. Once keeper and shims are dead, only its record
//! in the ledger identifies it.

use snakepit_proving::tag::TagMapping;

use crate::again;
use crate::process::ReadyDescriptor;

pub(crate) fn run(worn: &TagMapping, ready: &ReadyDescriptor) {
    // SAFETY: a plain system call on numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, 0) };
    again::depart(worn, ready, "rest");
}
