//! The ordinary mischief of a grown program: a child in its group, and a daemon that left it.

use snakepit_proving::tag::Worn;

use crate::process::{self, Ready};

pub(crate) fn run(worn: &Worn, ready: Ready) {
    let fd = ready.fd();
    process::fork(|| {
        Ready::inherited(fd).tell();
        process::rest(worn);
    });
    process::fork(|| {
        process::setsid();
        process::fork(|| {
            Ready::inherited(fd).tell();
            process::rest(worn);
        });
    });
    ready.tell();
    process::rest(worn);
}
