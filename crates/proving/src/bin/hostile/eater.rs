//! Allocates until the cgroup's limit; a bound keeps it from the machine's.

use snakepit_proving::tag::TagMapping;

use crate::process::{self, ReadyDescriptor};

const BOUND_MIB: usize = 1024;

pub(crate) fn run(worn: &TagMapping, ready: ReadyDescriptor) {
    ready.tell();
    // A moment for the host to note that we are ready comes from the pages themselves: they take longer.
    let mut eaten = Vec::new();
    for round in 0..BOUND_MIB {
        eaten.push(vec![round as u8 | 1; 1 << 20]);
    }
    std::hint::black_box(&eaten);
    process::rest(worn);
}
