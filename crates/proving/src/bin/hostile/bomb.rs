//! A bounded fork bomb: every process forks, and so do its children, until there are 255. `bomb leave` exits with 5
//! while they live.

use snakepit_proving::tag::TagMapping;

use crate::process::{self, ReadyDescriptor};

const DEPTH: u32 = 7;

pub(crate) fn run(worn: &TagMapping, ready: &ReadyDescriptor, args: &[&str]) {
    let mut at_rest = [0; 2];
    // SAFETY: pipe writes two descriptors into the array.
    assert_eq!(unsafe { libc::pipe(at_rest.as_mut_ptr()) }, 0, "pipe");
    let fds = [ready.fd(), Some(at_rest[1])];
    fork_twice(worn, fds, DEPTH);
    if args == ["leave"] {
        ReadyDescriptor::inherited(ready.fd()).tell();
        ReadyDescriptor::inherited(fds[1]).leave();
        let mut told = [0_u8; 256];
        // Each process reports once, and the pipe ends with the last one.
        // SAFETY: reads at most as many bytes as the buffer has, from our own pipe.
        while unsafe { libc::read(at_rest[0], told.as_mut_ptr().cast(), told.len()) } > 0 {}
        std::process::exit(5);
    }
    rest(worn, fds);
}

fn fork_twice(worn: &TagMapping, fds: [Option<i32>; 2], depth: u32) {
    if depth > 0 {
        for _ in 0..2 {
            process::try_fork(|| {
                // Every other generation also leaves the group.
                if depth.is_multiple_of(2) {
                    process::setsid();
                }
                fork_twice(worn, fds, depth - 1);
                rest(worn, fds);
            });
        }
    }
}

fn rest(worn: &TagMapping, fds: [Option<i32>; 2]) {
    for fd in fds {
        ReadyDescriptor::inherited(fd).tell();
    }
    process::rest(worn);
}
