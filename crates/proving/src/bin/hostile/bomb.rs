//! A fork bomb with a bound: every process forks, and so do its children, to a depth that makes 255.

use snakepit_proving::tag::Worn;

use crate::process::{self, Ready};

const DEPTH: u32 = 7;

pub(crate) fn run(worn: &Worn, ready: &Ready) {
    explode(worn, ready.fd(), DEPTH);
}

fn explode(worn: &Worn, ready: Option<i32>, depth: u32) {
    if depth > 0 {
        for _ in 0..2 {
            process::try_fork(|| {
                // Every other generation leaves the group too.
                if depth.is_multiple_of(2) {
                    process::setsid();
                }
                explode(worn, ready, depth - 1);
            });
        }
    }
    Ready::inherited(ready).tell();
    process::rest(worn);
}
