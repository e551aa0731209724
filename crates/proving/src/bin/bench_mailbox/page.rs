//! What stands around the table.

use snakepit_proving::bench::Page;

pub(crate) const PAGE: Page = Page {
    opening: "# Mailboxes: speed\n\n\
Written by `cargo run --release -p snakepit-proving --bin bench-mailbox -- --write`. Each number stands beside its floor, \
measured in the same run and by turns. Values are medians over the rounds with the 10th and 90th percentile.",
    beside: "floor",
    method: "\
- **send + receive + ack**: one thread sends ten messages of 100 bytes in one step, receives ten and acknowledges ten in one \
step, until all are through; each message counts once. The floor (`crates/proving/src/bin/bench_mailbox/floor.rs`) is what \
the same takes at the least: a queue, a heap of the ends of leases and a map of receipts under one lock, without priorities, \
delays, times to live, ids, futures or anybody who waits.\n\
- **wake-up**: two threads throw a message back and forth; the time runs from the call of a send until the other one has \
the message. The floor is a `tokio::sync::mpsc` channel between the same two.\n",
};
