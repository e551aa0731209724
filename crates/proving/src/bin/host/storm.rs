//! Threads that spawn without pause, for somebody to pull the plug in the middle.

use snakepit_custody::Run;

use crate::spawn::{self, Kit};

/// How many workers one thread starts at the most.
const PER_THREAD: usize = 64;

pub(crate) fn start(run: &Run, kit: &Kit, threads: usize, state: &str, log: &str) {
    for _ in 0..threads {
        let (run, kit) = (run.clone(), kit.clone());
        let (state, log) = (state.to_owned(), log.to_owned());
        std::thread::spawn(move || {
            for _ in 0..PER_THREAD {
                let (command, _hear) = spawn::hostile(&kit, &["storm", &state, &log]);
                // Refused when the keeper is the one that was killed.
                let _ = run.spawn(command);
            }
        });
    }
}
