//! Starts a child in the worker's group and a daemon that leaves it.

use snakepit_proving::tag::TagMapping;

use crate::process::{self, ReadyDescriptor};

pub(crate) fn run(worn: &TagMapping, ready: ReadyDescriptor) {
    let fd = ready.fd();
    process::fork(|| {
        ReadyDescriptor::inherited(fd).tell();
        process::rest(worn);
    });
    process::fork(|| {
        process::setsid();
        process::fork(|| {
            ReadyDescriptor::inherited(fd).tell();
            process::rest(worn);
        });
    });
    ready.tell();
    process::rest(worn);
}
