//! Runs the benchmarks with few rounds. They fail only if a busy machine and a debug build are no excuse: memory, and
//! times that are off by a factor. The real numbers are in `docs/bench/`.

use std::process::Command;

/// Returns the output of a benchmark, which must succeed.
#[track_caller]
fn printed(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output().expect("the benchmark starts");
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{}\n{stdout}\n{stderr}", output.status);
    stdout
}

#[test]
fn speed_is_of_the_right_order_and_keeper_and_shims_are_small() {
    printed(env!("CARGO_BIN_EXE_bench"), &["--smoke"]);
}

#[test]
fn speed_of_calls_can_be_measured_with_python3_alone() {
    let words = ["--quick", "one", "many", "adapters", "stream", "map", "memory"];
    let table = printed(env!("CARGO_BIN_EXE_bench-calls"), &words);
    assert!(table.contains("raw echo"), "{table}");
}

#[test]
fn speed_of_mailboxes_can_be_measured() {
    let table = printed(env!("CARGO_BIN_EXE_bench-mailbox"), &["--quick"]);
    assert!(table.contains("durable sends"), "{table}");
}

#[test]
fn speed_of_loops_can_be_measured() {
    let table = printed(env!("CARGO_BIN_EXE_bench-loops"), &["--quick"]);
    for what in ["through a loop", "idle loops", "drain of"] {
        assert!(table.contains(what), "{table}");
    }
}
