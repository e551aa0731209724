//! Autopsies to decide about.

use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;

use crate::custody::{Exit, ExitStatus, WorkerId};
use crate::worker::Autopsy;

pub(super) fn died(status: ExitStatus, output: &[&str]) -> Autopsy {
    let exit = Exit { status, max_rss_kib: 0, user_time: Duration::ZERO, system_time: Duration::ZERO };
    Autopsy {
        worker: WorkerId::new("w1").expect("an id"),
        pid: None,
        exit: Some(exit),
        fault: None,
        oom: crate::Verdict::No,
        rss: None,
        age: Duration::from_secs(1),
        calls: 1,
        output: output.iter().map(|&line| line.to_owned()).collect(),
        stack: None,
    }
}

pub(super) fn died_of(signal: Signal, output: &[&str]) -> Autopsy {
    died(ExitStatus::Signal(signal.as_raw()), output)
}

pub(crate) fn crash() -> Arc<Autopsy> {
    Arc::new(died_of(Signal::SEGV, &["Fatal Python error: Segmentation fault"]))
}
