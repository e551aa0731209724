//! A library forks the host: the copy exits in its own way and leaves the engine alone.

use std::process::ExitCode;

use snakepit::{Snakepit, args};
use snakepit_proving::{Deadline, ObservedProcess};

use crate::{EmbedderOptions, tell};

pub(crate) fn fork(options: &EmbedderOptions) -> ExitCode {
    let runtime = options.runtime();
    let pit = runtime.block_on(options.engine().start()).expect("an engine");
    // SAFETY: the copy has one thread. Of what another thread may have held during the fork, it uses only what is
    // tested here. A test that fails hangs, and its parent ends it.
    let copy = unsafe { libc::fork() };
    assert!(copy >= 0, "fork");
    if copy == 0 {
        be_the_copy(options.get("how"), pit);
    }
    let process = ObservedProcess::of(copy);
    if !process.ends_before(Deadline::patient()) {
        tell("the copy hangs");
        process.end();
    }
    let mut status = 0;
    // SAFETY: it is our own child, and the pointer to its status is valid.
    unsafe { libc::waitpid(copy, &raw mut status, 0) };
    tell(&format!("the copy ended with {}", libc::WEXITSTATUS(status)));
    let served = runtime.block_on(pit.call::<u32>("echo", args! { value: 7 }).into_future());
    tell(if served.is_ok_and(|value| value == 7) { "served" } else { "not served" });
    runtime.block_on(pit.stop());
    ExitCode::SUCCESS
}

fn be_the_copy(how: &str, pit: Snakepit) -> ! {
    match how {
        "exit" => std::process::exit(5),
        "exit-now" => snakepit::lifecycle::exit_now(5),
        "exit-in-order" => snakepit::lifecycle::exit(5),
        "drop" => drop(pit),
        "stop" => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(pit.stop());
        }
        "cleanup" => drop(Snakepit::cleanup()),
        how => panic!("no such copy: {how}"),
    }
    snakepit::lifecycle::exit_now(5)
}
