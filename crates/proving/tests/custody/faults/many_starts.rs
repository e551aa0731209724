//! Many hosts start at once beside many live runs and some dead ones. The defect behind this test: every host swept
//! everything, and each start took half a minute.

use std::time::{Duration, Instant};

use snakepit_proving::{Case, HostProcess, ObservedProcess, rounds};

super::each_tier!(at_once);

/// The time limit of all these starts.
const IN_TIME: Duration = Duration::from_secs(2);

fn at_once(case: &mut Case) {
    let live = open_live_runs(case, rounds(250, 40));
    for _ in 0..rounds(10, 3) {
        let mut dead = case.host_with(1, "heir");
        super::kill_all_of_custody(&mut dead);
    }
    // The hosts are started in advance, because only the opening of their runs is measured.
    let mut hosts: Vec<HostProcess> = (0..rounds(60, 12)).map(|_| case.bare_host()).collect();
    let order = format!("open tier={} state={}", case.tier.name(), case.state().display());
    let began = Instant::now();
    for host in &mut hosts {
        host.say(&order);
    }
    let mut slowest = Duration::ZERO;
    for host in &mut hosts {
        let line = host.hear().expect("an answer");
        slowest = slowest.max(began.elapsed());
        let run = line.split_ascii_whitespace().find_map(|word| word.strip_prefix("run="));
        case.note_run(run.unwrap_or_else(|| panic!("{line}")));
    }
    eprintln!("the slowest of {} starts took {slowest:?}", hosts.len());
    let left = case.tagged_processes();
    assert!(left.is_empty(), "the dead runs are cleared before a start comes back: {left:#?}");
    for host in &mut hosts {
        host.say("return");
        assert!(host.wait().success());
    }
    assert!(slowest < IN_TIME, "the slowest start took {slowest:?}");
    drop(live);
    case.verdict();
}

/// Opens live runs of one host, which are dropped with it.
fn open_live_runs(case: &mut Case, count: usize) -> LiveRuns {
    let mut host = case.bare_host();
    let told =
        host.ask(&format!("open-many {count} tier={} state={}", case.tier.name(), case.state().display()));
    let told = told.expect("open many runs");
    for run in told["runs"].split(',') {
        case.note_run(run);
    }
    LiveRuns(host)
}

struct LiveRuns(HostProcess);

impl Drop for LiveRuns {
    fn drop(&mut self) {
        let process: &ObservedProcess = self.0.process();
        process.signal(rustix::process::Signal::KILL);
    }
}
