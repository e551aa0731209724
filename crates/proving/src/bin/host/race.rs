//! Races a stop against the worker's own exit. Whichever wins, there is one status.

use std::time::Duration;

use snakepit_custody::{ExitStatus, Run};
use snakepit_proving::deadline::let_pass;
use snakepit_proving::random;

use crate::orders::OrderRefusal;
use crate::spawn::{self, HostileProgram};

/// The maximum time between the two.
const SPREAD_MICROS: u64 = 1500;

pub(crate) fn run(
    run: &Run,
    hostile_program: &HostileProgram,
    rounds: usize,
) -> Result<String, OrderRefusal> {
    let (mut natural, mut stopped, mut wrong) = (0, 0, Vec::new());
    for round in 0..rounds {
        let after = random::below(SPREAD_MICROS).to_string();
        let (command, hear) = spawn::hostile(hostile_program, &["exit", "7", &after]);
        let worker = run.spawn(command)?;
        spawn::await_ready(&hear).map_err(OrderRefusal::new)?;
        let pause = Duration::from_micros(random::below(SPREAD_MICROS));
        let (early, late, report) = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| worker.wait());
            // The pause positions the race. It does not wait for an event.
            let_pass(pause);
            let report = worker.stop(Duration::from_secs(3));
            (waiting.join().expect("the waiting thread"), worker.wait(), report)
        });
        match early.status {
            ExitStatus::Code(7) => natural += 1,
            ExitStatus::Signal(libc::SIGTERM) => stopped += 1,
            _ => wrong.push(format!("{round}:{:?}", early.status)),
        }
        let double = report.stopped + report.killed > 1 || report.killed > 0;
        if early != late || double || !report.survivors.is_empty() {
            wrong.push(format!("{round}:{early:?}/{late:?}/{report:?}"));
        }
    }
    Ok(format!("natural={natural} stopped={stopped} wrong={}", wrong.join(";").replace(' ', "_")))
}
