//! Stops itself and its child: TERM stays pending for ever.

use snakepit_proving::tag::Worn;

use crate::process::{self, Ready};

pub(crate) fn run(worn: &Worn, ready: Ready) {
    let fd = ready.fd();
    process::fork(|| {
        Ready::inherited(fd).tell();
        stop();
        process::rest(worn);
    });
    ready.tell();
    stop();
    process::rest(worn);
}

fn stop() {
    // SAFETY: stops this process; there is no memory involved.
    unsafe { libc::raise(libc::SIGSTOP) };
}
