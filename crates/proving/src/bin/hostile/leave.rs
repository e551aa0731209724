//! Starts children inside and outside its group, and exits with 5 while they live.

use snakepit_proving::tag::TagMapping;

use crate::process::{self, ReadyDescriptor};

pub(crate) fn run(worn: &TagMapping, ready: ReadyDescriptor) {
    let fd = ready.fd();
    for outside in [false, true] {
        let (mut heard, mut told) = ([0; 1], [0; 2]);
        // SAFETY: pipe writes two descriptors into the array.
        assert_eq!(unsafe { libc::pipe(told.as_mut_ptr()) }, 0, "pipe");
        process::fork(|| {
            if outside {
                process::setsid();
            }
            ReadyDescriptor::inherited(fd).tell();
            // SAFETY: writes one byte from a valid buffer to our own pipe.
            unsafe { libc::write(told[1], heard.as_ptr().cast(), 1) };
            process::rest(worn);
        });
        // SAFETY: reads one byte into a valid buffer from our own pipe.
        unsafe { libc::read(told[0], heard.as_mut_ptr().cast(), 1) };
    }
    ready.tell();
    std::process::exit(5);
}
