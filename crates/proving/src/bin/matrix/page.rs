//! Writes `docs/custody-matrix.md`, the table for users.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use snakepit_proving::machine;
use snakepit_proving::unit::Unit;

use crate::cell::{CellObservation, CellOutcome, MatrixRow};
use crate::expected;
use crate::fault::MatrixFault;

const OPENING: &str = "\
# What custody holds, measured

**Generated** by `cargo build -p snakepit-proving --bins && target/debug/matrix --write`, as root. Do not edit it: run that again.

Each cell is a real run with real workers: a place, a tier, a fault. It says how many of the processes survived that had to
end, and how long the last of them took. No bystander was harmed in any of them: an unrelated process, one with the marker of another
run, one of the same user where the host is an ordinary user's, and two more inside a PID namespace. A tier that cannot be had must be refused
with a sentence. A cell that differs from what [custody.md](custody.md) promises fails the program, and `./test --full`, which runs all of
this; `./test` runs the column of the default tier for a killed host and for a stop. Processes, control groups, mounts and files are counted at
the end: nothing is left.
";

const LEGEND: &str = "\
## How to read it

- `0 · 1.2 ms`: nobody survived, and the last worker ended after that time. `auto` with `cgroup.kill` behind it is marked †.
- `+3`: so many had left the process group, which the tier `group` does not hold, and were alive. Where only the keeper is killed, the host
  finds most of them by their marker.
- `kill -9` host, keeper, both: three workers, each with a child in its group and a daemon that left group and session.
  Both are stopped before they are killed, so that neither sees the other die; the shims are left to act.
- worker ends: it exits with 5 and leaves two children, one of them outside its group; the time is that of `wait`, after which they are gone.
- fork bomb: every process forks for ever and every child calls `setsid`, at a limit of 200 processes: `RLIMIT_NPROC` for an ordinary
  user, a `pids` cgroup of version 1 for root. Then the host is killed, or the worker ends and leaves the bomb. In the tier `group`, where all
  of these would go on, it is one that stays at its size, and every other generation of it in the group.
- stop: TERM to three workers with a child and a daemon each, then KILL; the time is that of the answer.
- Times are of one run each, on a machine that may have been busy. [bench/custody.md](bench/custody.md) has measured ones.

Docker, Podman, gVisor and the kernel without pidfds are imitated by filters ([containers.md](containers.md) says how) in a PID namespace
with its own `/proc`; the rest is real. The first process of a PID namespace is none of ours, so that the end of the host is not the end of
everything.
";

/// Writes the page.
pub(crate) fn write(rows: &[MatrixRow]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/custody-matrix.md");
    fs::write(&path, text(rows)).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

fn text(rows: &[MatrixRow]) -> String {
    let mut refusals: Vec<String> = Vec::new();
    let mut text = format!("{OPENING}\nMachine: {}. {}\n\n", machine::describe(), controllers());
    let head: Vec<&str> = MatrixFault::ALL.iter().map(|fault| fault.words()).collect();
    let _ = writeln!(text, "| place | tier | {} |\n|---|---|{}", head.join(" | "), "---|".repeat(head.len()));
    let mut before = None;
    for row in rows {
        let place = if before == Some(row.place) { "" } else { row.place.words() };
        before = Some(row.place);
        let cells: Vec<String> =
            row.cells.iter().map(|(fault, outcome)| show(row, *fault, outcome, &mut refusals)).collect();
        let mark = if row
            .cells
            .iter()
            .any(|(_, it)| matches!(it, CellOutcome::Held(CellObservation { cgroup: true, .. })))
        {
            " †"
        } else {
            ""
        };
        let _ = writeln!(text, "| {place} | `{}`{mark} | {} |", row.tier.name(), cells.join(" | "));
    }
    let _ = writeln!(text, "\n## What is said where a tier is refused\n");
    for (number, words) in refusals.iter().enumerate() {
        let _ = writeln!(text, "{}. {words}", number + 1);
    }
    let _ = write!(text, "\n{LEGEND}");
    text
}

fn show(row: &MatrixRow, fault: MatrixFault, outcome: &CellOutcome, refusals: &mut Vec<String>) -> String {
    if expected::differs(row.place, row.tier, fault, outcome).is_some() {
        return "**DIFFERS**".to_owned();
    }
    match outcome {
        CellOutcome::Held(CellObservation { survivors, left, took, .. }) => {
            let left = if *left > 0 { format!(" +{left}") } else { String::new() };
            format!("{survivors}{left} · {}", Unit::Seconds.show(took.as_secs_f64()))
        }
        CellOutcome::Refused(words) => {
            let words = without_numbers(words);
            let known = refusals.iter().position(|it| *it == words).unwrap_or_else(|| {
                refusals.push(words);
                refusals.len() - 1
            });
            format!("refused ({})", known + 1)
        }
        CellOutcome::Unproven(_) => "not proven".to_owned(),
        CellOutcome::Broken(_) => "**DIFFERS**".to_owned(),
    }
}

/// Returns the sentence without the numbers of processes, which differ from run to run.
fn without_numbers(words: &str) -> String {
    let Some((head, tail)) = words.split_once("the pid ") else { return words.to_owned() };
    let tail = tail.split_once(": ").map_or("", |(_, tail)| tail);
    format!("{head}the pid N and not M: {tail}")
}

/// Describes what control groups of version 2 can do here.
fn controllers() -> String {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let place = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"));
    let place = place.and_then(|line| line.split(' ').nth(1));
    let Some(place) = place else { return "No cgroup v2.".to_owned() };
    let have = fs::read_to_string(Path::new(place).join("cgroup.controllers")).unwrap_or_default();
    let missing: Vec<&str> = ["memory", "pids"]
        .into_iter()
        .filter(|it| !have.split_ascii_whitespace().any(|one| one == *it))
        .collect();
    if missing.is_empty() {
        return "cgroup v2 with the controllers memory and pids.".to_owned();
    }
    format!(
        "cgroup v2 without the controllers {}: `cgroup.kill` and freezing are tested; what v2 limits would do to a run is **not proven here**.",
        missing.join(" and ")
    )
}
