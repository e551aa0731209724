//! How much memory large queued values leave behind in the host; `docs/supervision.md` has the figures.
//!
//! About `crates/core/src/call/input.rs` and `crates/core/src/queue/scheduler/mod.rs`.

use std::process::Command;

use snakepit::value::Blob;
use snakepit::{Value, args};

use crate::support::{self, Pit, lines, soon, until, worker};

/// Set in the child, which measures its own process.
const CHILD: &str = "SNAKEPIT_MEASURES_MEMORY";
/// The number of values of one MiB each.
const VALUES: usize = 300;

fn resident_mib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("memory");
    rss.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") / 1024
}

/// Returns how many more MiB the host holds while the values wait, and when all are served.
async fn grown() -> (usize, usize) {
    let pool = worker("hostile.py").workers(1).queue_timeout(support::SOON);
    let pit = Pit::start(pool).await;
    let value = |byte: u8| args! { value: Blob::from(vec![byte; 1 << 20]) };
    // What the first call needs is needed only once.
    soon("a call", pit.call::<Value>("echo", value(0))).await.expect("served");
    let before = resident_mib();
    let path = pit.file("occupied");
    let occupied = args! { path: path.as_str(), key: "occupied", seconds: 2.0 };
    let first = tokio::spawn(pit.call::<Value>("mark_and_sleep", occupied).into_future());
    until("the worker is occupied", || !lines(&path).is_empty()).await;
    let call = |n: usize| pit.call::<Value>("echo", value(n as u8)).into_future();
    let calls: Vec<_> = (0..VALUES).map(|n| tokio::spawn(call(n))).collect();
    until("all wait", || pit.pools()[0].queued() >= VALUES - 1).await;
    let waiting = resident_mib().saturating_sub(before);
    for call in calls {
        drop(soon("a call", call).await.expect("no panic").expect("served"));
    }
    soon("the first", first).await.expect("no panic").expect("served");
    let after = resident_mib().saturating_sub(before);
    pit.end().await;
    (waiting, after)
}

#[tokio::test(flavor = "multi_thread")]
async fn child() {
    if std::env::var_os(CHILD).is_some() {
        let (waiting, after) = grown().await;
        println!("grown: {waiting} {after}");
    }
}

/// Runs the test `child` with these variables.
#[expect(clippy::disallowed_methods, reason = "an allocator is set when its process starts")]
fn measured(variables: &[(&str, &str)]) -> (usize, usize) {
    let mut command = Command::new(std::env::current_exe().expect("a test has a path"));
    command
        .args(["--exact", "queue::memory::child", "--nocapture"])
        .env(CHILD, "1")
        .envs(variables.iter().copied());
    let output = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let grown = said.lines().find_map(|line| line.split("grown: ").nth(1)).expect(&said);
    let (waiting, after) = grown.split_once(' ').expect("two numbers");
    (waiting.parse().expect("a number"), after.parse().expect("a number"))
}

#[test]
fn with_a_fixed_threshold_large_values_leave_nothing_behind() {
    println!("as it is: {:?} MiB", measured(&[]));
    let (waiting, after) = measured(&[("MALLOC_MMAP_THRESHOLD_", "131072")]);
    println!("MALLOC_MMAP_THRESHOLD_=131072: {:?} MiB", (waiting, after));
    assert!(waiting >= VALUES * 9 / 10, "they did not wait: {waiting} MiB");
    assert!(after < VALUES / 5, "{after} MiB are left of {waiting}");
}
