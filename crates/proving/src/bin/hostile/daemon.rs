//! Double fork and setsid, the textbook escape; the worker itself stays.

use snakepit_proving::tag::Worn;

use crate::process::{self, Ready};

pub(crate) fn run(worn: &Worn, ready: Ready) {
    let fd = ready.fd();
    for _ in 0..3 {
        process::fork(|| {
            process::setsid();
            process::fork(|| {
                Ready::inherited(fd).tell();
                process::rest(worn);
            });
        });
    }
    ready.tell();
    process::rest(worn);
}
