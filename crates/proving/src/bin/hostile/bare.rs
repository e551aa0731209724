//! Leaves a child in the worker's group, without environment and descriptors. Only the group shows which worker it
//! belongs to.

use snakepit_proving::tag::TagMapping;

use crate::again;
use crate::process::{self, ReadyDescriptor};

pub(crate) fn run(worn: &TagMapping, ready: ReadyDescriptor) {
    let fd = ready.fd();
    process::fork(|| again::depart(worn, &ReadyDescriptor::inherited(fd), "rest"));
    ready.tell();
    process::rest(worn);
}
