//! The text around the table in `docs/bench/custody.md`.

use snakepit_bench::ReportPage;

pub(crate) const PAGE: ReportPage = ReportPage {
    opening: "# Custody: speed and size\n\n\
Written by `cargo run --release -p snakepit-bench --bin bench -- --write`. Each number stands beside its floor, the \
best that the same mechanism can do, measured in the same run and by turns (ours, floor, ours, …), because machines \
are noisy. Values are medians with the 10th and 90th percentile.",
    beside: "floor",
    method: "\
- **kill -9 of the host → all gone**: pidfds of the host and of all its descendants are opened beforehand; the time \
runs from the signal until the last of them is readable. The floor is `crates/bench/src/bin/floor.rs`: the same \
tree with nothing but PDEATHSIG, linked statically, so that its processes are as small as ours. Host and workers \
(`/bin/sleep`) are the same programs on both sides.\n\
- **spawn to exec**: from the call until it returns, which is when the program runs, for ours as for `posix_spawn`.\n\
- **spawn + wait**: `/bin/true`, until the worker and all that it may have started are gone; for the floor until \
`waitpid` returns.\n\
- **Run::open**: from the call until it returns, by turns in a state directory with one live run and in one with many.\n\
- **ledger append**: a record as a spawn writes it; the floor is a bare `pwrite` of 512 bytes on the same disk.\n\
- **Pss**: from `smaps_rollup`, with 100 workers running; the largest counts.",
};
