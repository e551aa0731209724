//! Double fork and setsid, then every descriptor closed and the environment empty: nothing is left by
//! which the run could be recognised.

use snakepit_proving::tag::TagMapping;

use crate::again;
use crate::process::{self, ReadyDescriptor};

pub(crate) fn run(worn: &TagMapping, ready: ReadyDescriptor) {
    let fd = ready.fd();
    for _ in 0..3 {
        process::fork(|| {
            process::setsid();
            process::fork(|| {
                let ready = ReadyDescriptor::inherited(fd);
                again::depart(worn, &ready, "rest");
            });
        });
    }
    ready.tell();
    process::rest(worn);
}
