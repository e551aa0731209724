//! Allocates until the cgroup's limit. A bound protects the machine's memory.

use snakepit_proving::tag::TagMapping;

use crate::process::{self, ReadyDescriptor};

const BOUND_MIB: usize = 1024;

pub(crate) fn run(worn: &TagMapping, ready: ReadyDescriptor) {
    ready.tell();
    // Touching the pages takes longer than the host needs to notice that the worker is ready.
    let mut eaten = Vec::new();
    for round in 0..BOUND_MIB {
        eaten.push(vec![round as u8 | 1; 1 << 20]);
    }
    std::hint::black_box(&eaten);
    process::rest(worn);
}
