//! The matrix of custody as a test: the default tier in every place, or the whole matrix with `SNAKEPIT_FULL`.
//!
//! The promise: no worker and nothing that it starts outlives its owner, wherever people run it, and no foreign process
//! is harmed. What is impossible is refused in words.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

const QUICK: [&str; 4] = ["--tier", "auto", "--fault", "kill-host,stop"];

#[test]
fn every_cell_of_the_matrix_holds_and_leaves_nothing() {
    if !snakepit_proving::is_root() {
        return snakepit_proving::unproven("the matrix of custody: only root can create all of its places");
    }
    let words: &[&str] = if snakepit_proving::is_full() { &[] } else { &QUICK };
    let output = Command::new(env!("CARGO_BIN_EXE_matrix")).args(words).output().expect("start the matrix");
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{}\n{stdout}\n{stderr}", output.status);
    assert!(stdout.contains("left behind: no process, no cgroup, no mount, no file"), "{stdout}");

    // People read the page, and the program knows the places. Both must list the same places.
    let cells = stdout.lines().filter(|line| line.contains(" auto ") && line.contains(" kill-host "));
    let places: BTreeSet<&str> = cells.filter_map(|line| line.split(' ').next()).collect();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/custody-matrix.md");
    let page = std::fs::read_to_string(page).expect("docs/custody-matrix.md");
    let rows = page.lines().filter(|line| line.starts_with("| ") && line.contains("| `auto`"));
    assert_eq!(rows.count(), places.len(), "docs/custody-matrix.md is of another program: write it again");
    assert!(!page.contains("DIFFERS"), "{page}");
}

#[test]
fn an_unknown_name_is_rejected_with_the_known_ones() {
    let unknown = ["measure", "--place", "moon"];
    let output = Command::new(env!("CARGO_BIN_EXE_matrix")).args(unknown).output().expect("start the matrix");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("moon is not one of root, unprivileged"), "{said}");
}
