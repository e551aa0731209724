//! A worker that first looks for itself in the ledger: `storm STATE_DIR LOG`.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use snakepit_proving::tag::TagMapping;

use crate::process::{self, ReadyDescriptor};

pub(crate) fn run(worn: &TagMapping, ready: ReadyDescriptor, args: &[&str]) {
    let [state, log] = args else { panic!("storm STATE_DIR LOG") };
    let verdict = if is_recorded(Path::new(state)) { "recorded" } else { "unrecorded" };
    let mut log = OpenOptions::new().append(true).open(log).expect("the storm's log");
    let name = std::env::var("SNAKEPIT_WORKER_ID").unwrap_or_default();
    log.write_all(format!("{verdict} {name}\n").as_bytes()).expect("one line into the log");
    ready.tell();
    process::rest(worn);
}

fn is_recorded(state: &Path) -> bool {
    let (Ok(run), Ok(worker)) = (std::env::var("SNAKEPIT_RUN_ID"), std::env::var("SNAKEPIT_WORKER_ID"))
    else {
        return false;
    };
    let runs = snakepit_custody::ledger(state).expect("read the ledger");
    let ours = runs.iter().filter(|entry| entry.run == run);
    ours.flat_map(|entry| &entry.processes)
        .any(|process| process.worker.as_str() == worker && !process.at_gate && process.pid.is_some())
}
