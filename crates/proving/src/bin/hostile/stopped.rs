//! Stops itself and its child. TERM then stays pending forever.

use snakepit_proving::tag::TagMapping;

use crate::process::{self, ReadyDescriptor};

pub(crate) fn run(worn: &TagMapping, ready: ReadyDescriptor) {
    let fd = ready.fd();
    process::fork(|| {
        ReadyDescriptor::inherited(fd).tell();
        stop();
        process::rest(worn);
    });
    ready.tell();
    stop();
    process::rest(worn);
}

fn stop() {
    // SAFETY: stops this process and involves no memory.
    unsafe { libc::raise(libc::SIGSTOP) };
}
