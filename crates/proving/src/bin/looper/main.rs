//! A host with loops, for a test to kill: it prints each operation on its mailbox in a line, so that the test knows
//! what was under way.
//!
//! - `looper work FILE SEED` sends messages and handles messages until it has handled enough.
//! - `looper rest FILE` handles messages until none are left.
//! - Both of them with `pool WORKER` behind it: a command of a pool of Python workers handles the messages.
//! - `looper eval CHECKPOINT WORKER` runs an evaluation directly.
//! - `looper letters FILE CHECKPOINT WORKER` runs an evaluation through mailboxes.
//! - `looper serve FILE` runs a service that signals end.
//! - `looper answer FILE` runs another such service without the steps of a test, with `pool WORKER` behind it or without.
//! - `looper contend` takes the locks of a shutdown in its main thread all the time.

mod answer;
mod evaluate;
mod life;
mod serve;

use std::process::ExitCode;
use std::time::Duration;

use snakepit::policy::Restarts;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if words == ["contend"] {
        return serve::contend();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        match words[..] {
            ["work", file, seed] => life::work(file, seed.parse().expect("a number"), None).await,
            ["work", file, seed, "pool", worker] => {
                life::work(file, seed.parse().expect("a number"), Some(worker)).await;
            }
            ["rest", file] => life::rest(file, None).await,
            ["rest", file, "pool", worker] => life::rest(file, Some(worker)).await,
            ["eval", checkpoint, worker] => evaluate::directly(checkpoint, worker).await,
            ["letters", file, checkpoint, worker] => evaluate::by_letters(file, checkpoint, worker).await,
            ["answer", file] => return answer::run(file, None).await,
            ["answer", file, "pool", worker] => return answer::run(file, Some(worker)).await,
            ["serve", file] => return serve::run(file).await,
            _ => panic!("looper: what is {words:?}?"),
        }
        ExitCode::SUCCESS
    })
}

/// Returns a policy that immediately restarts workers that die on request.
fn at_once() -> Restarts {
    let (first, longest) = (Duration::from_millis(1), Duration::from_millis(5));
    Restarts::default().failures(1000).first_pause(first).longest_pause(longest)
}
