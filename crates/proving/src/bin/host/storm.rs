//! Threads that spawn without pause, for a test to kill a process in the middle.

use snakepit_custody::Run;

use crate::spawn::{self, HostileProgram};

/// How many workers one thread starts at the most.
const PER_THREAD: usize = 64;

pub(crate) fn start(run: &Run, hostile_program: &HostileProgram, threads: usize, state: &str, log: &str) {
    for _ in 0..threads {
        let (run, hostile_program) = (run.clone(), hostile_program.clone());
        let (state, log) = (state.to_owned(), log.to_owned());
        std::thread::spawn(move || {
            for _ in 0..PER_THREAD {
                let (command, _hear) = spawn::hostile(&hostile_program, &["storm", &state, &log]);
                // Refused when the keeper is the one that was killed.
                let _ = run.spawn(command);
            }
        });
    }
}
