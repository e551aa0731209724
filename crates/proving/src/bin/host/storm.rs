//! Threads that spawn without pause, for a test that kills a process meanwhile.

use snakepit_custody::Run;

use crate::spawn::{self, HostileProgram};

/// The maximum number of workers that one thread starts.
const PER_THREAD: usize = 64;

pub(crate) fn start(run: &Run, hostile_program: &HostileProgram, threads: usize, state: &str, log: &str) {
    for _ in 0..threads {
        let (run, hostile_program) = (run.clone(), hostile_program.clone());
        let (state, log) = (state.to_owned(), log.to_owned());
        std::thread::spawn(move || {
            for _ in 0..PER_THREAD {
                let (command, _hear) = spawn::hostile(&hostile_program, &["storm", &state, &log]);
                // The spawn is refused if the test has killed the keeper.
                let _ = run.spawn(command);
            }
        });
    }
}
