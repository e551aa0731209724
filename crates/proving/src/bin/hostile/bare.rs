//! A child in the worker's own group without environment and descriptors: the group alone says whose it is.

use snakepit_proving::tag::Worn;

use crate::again;
use crate::process::{self, Ready};

pub(crate) fn run(worn: &Worn, ready: Ready) {
    let fd = ready.fd();
    process::fork(|| again::depart(worn, &Ready::inherited(fd), "rest"));
    ready.tell();
    process::rest(worn);
}
