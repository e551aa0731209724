//! The text around the table in `docs/bench/calls.md`.

use snakepit_bench::ReportPage;

pub(crate) const PAGE: ReportPage = ReportPage {
    opening: "# Calls: speed and size\n\n\
Written by `crates/bench/bench-venv && cargo run --release -p snakepit-bench --features peers --bin bench-calls -- \
--write`. Each number of ours stands beside a floor (the best that the same mechanism can do) or a peer (what people \
use today), measured in the same run and by turns (A B C A B C …), because machines are noisy. Values are medians \
over the rounds with the 10th and 90th percentile of the rounds; p50 and p99 are taken within each round.",
    beside: "floor or peer",
    method: "\
- **Everybody** runs the same interpreter, resolved (no launcher in front of it), and is warmed up by a round that does \
not count. Participants that wait for their turn are blocked. Unless a row says so, nothing is pinned.\n\
- **raw echo, blocking**: a plain Rust client (no runtime) writes a length and so many bytes to a Unix socket, a \
blocking Python loop sends them back: `crates/cli/src/bench/raw_echo.{rs,py}`. Its socket has the buffers that ours \
has (4 MiB).\n\
- **cores**: where the kernel puts a woken process decides most of a small call's time. Unpinned, that is its choice \
(often one core for both, where no core has to wake up). *Both on one core* and \
*each on a core* hold host and worker of both sides there.\n\
- **pipelined msgspec echo**: a Rust thread for each worker writes a window of `[command, args]` frames, then reads \
the window's answers; the Python loop decodes, looks the command up, calls it and encodes with msgspec.\n\
- **in flight**: how many calls a caller has open for each worker. A call's time runs from its submission to its \
result, so with many in flight p50 is mostly waiting.\n\
- **tonic → grpcio**: one Python server process for each worker, as Snakepit for Elixir has it, over TCP on loopback, one \
channel each; tonic on a runtime with one thread and grpcio sync with four, which was the fastest of what was tried; messages with one field.\n\
- **both over gRPC**: our gRPC adapter beside that, also on a runtime with one thread, over a Unix socket, as it comes; with `concurrency = 64`, so \
that as many calls are in flight.\n\
- **over stdio**: a worker without the SDK, lines of JSON, `concurrency = 64`. It echoes a text, since JSON has no bytes. It \
reads and writes JSON with msgspec, as our other workers do, or with Python's own `json`, which alone takes 2.3 ms for a text of 1 MiB.\n\
- **the same server over HTTP**: mosec behind our pool, which starts it, chooses its port and proves whose port it is, \
beside mosec behind its own client path; at most 32 connections for both, and the same bytes. What we miss there is our \
host: for each call, a runtime, a queue and hyper take 15 to 25 µs of CPU time over TCP, and 32 blocking threads of a \
client that parses as little as it can take 9 to 15 µs, on two cores that they share with mosec's server and workers. The \
profile is flat: half is the kernel's TCP and wake-ups of the runtime's threads, and no function of ours has 1 %.\n\
- **both over HTTP**: two servers that do the same: ours is one thread of plain Python that takes and returns bytes over a \
Unix socket, mosec is a Rust server with Python workers that do so. *To http.server*: what this row was before: Python's \
`ThreadingHTTPServer` with `json`, with a thread for each connection. It is reported because people use it; 70 % of the CPU time is \
Python's, and its p99 is that of 64 threads that wait for one interpreter lock: with 16 calls in flight it is a tenth, and the rate \
is higher.\n\
- **connections**: ours are given up after two seconds without a call, those of peers stay, so ours are made before a turn \
is timed.\n\
- **mp.Pool, ProcessPoolExecutor, Ray**: timed inside their Python host, with the same number of calls in flight.\n\
- **in batches**: the same callers call a command that takes up to 32 calls as one list. A batch saves the worker most \
of its work (0.4 µs of 1.4 µs for each call are left; without msgspec 1.1 µs of 2.7) but hardly any of the host's: each \
call is still a task with a future, an entry in a list of deadlines and an answer of its own, about 2 µs. A quarter of \
these is the kernel's, for threads that wait for one another: the callers of one batch wake up together, and join the \
next one under one lock. So batches pay off for the worker's code, and where Python is the limit; between a quick host \
and a worker with msgspec, they cannot be three times as fast.\n\
- **map beside mp.Pool**: mp.Pool takes about 120 ns for each input in its workers and 200 ns in its host. Ours take \
about 310 ns in the workers and 120 ns in the host. Of the workers' time, 48 ns are the look at the clock for the \
deadline, 65 ns the entry that survives the worker, 30 ns the reading, 30 ns the writing, 25 ns the function. \
mp.Pool has no deadline, no cancellation, and loses the whole map with a worker.\n\
- **mosec**: HTTP/1.1 over kept connections, at most 32, from blocking Rust threads.\n\
- **start until ready**: from the call until every worker has said that it is ready; for a bare python3 until its \
byte has arrived over the inherited socket; for mp.Pool until each worker has run its initializer.\n\
- **memory**: from `smaps_rollup`, four workers of each kind at the same time, ours after it has answered calls.",
};
