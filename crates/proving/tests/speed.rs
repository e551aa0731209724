//! The benchmarks run here with few rounds. Only what a busy machine cannot excuse fails: memory, and times that
//! are off by a factor, not by noise: the build is not optimized. The real numbers are in `docs/bench/`.

use std::process::Command;

#[test]
fn speed_is_of_the_right_order_and_keeper_and_shims_are_small() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_bench")).arg("--smoke").output().expect("the benchmark starts");
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{}\n{stdout}\n{stderr}", output.status);
}

#[test]
fn speed_of_calls_can_be_measured_with_python3_alone() {
    let output = Command::new(env!("CARGO_BIN_EXE_bench-calls"))
        .args(["--quick", "one", "many", "stream", "map", "memory"])
        .output()
        .expect("the benchmark starts");
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{}\n{stdout}\n{stderr}", output.status);
    assert!(stdout.contains("raw echo"), "{stdout}");
}

#[test]
fn speed_of_mailboxes_can_be_measured() {
    let output = Command::new(env!("CARGO_BIN_EXE_bench-mailbox"))
        .arg("--quick")
        .output()
        .expect("the benchmark starts");
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{}\n{stdout}\n{stderr}", output.status);
}

#[test]
fn speed_of_loops_can_be_measured() {
    let output = Command::new(env!("CARGO_BIN_EXE_bench-loops"))
        .arg("--quick")
        .output()
        .expect("the benchmark starts");
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{}\n{stdout}\n{stderr}", output.status);
    for what in ["through a loop", "idle loops", "drain of"] {
        assert!(stdout.contains(what), "{stdout}");
    }
}
