//! Starts daemons by a double fork and setsid, the textbook escape. The worker itself stays.

use snakepit_proving::tag::TagMapping;

use crate::process::{self, ReadyDescriptor};

pub(crate) fn run(worn: &TagMapping, ready: ReadyDescriptor) {
    let fd = ready.fd();
    for _ in 0..3 {
        process::fork(|| {
            process::setsid();
            process::fork(|| {
                ReadyDescriptor::inherited(fd).tell();
                process::rest(worn);
            });
        });
    }
    ready.tell();
    process::rest(worn);
}
