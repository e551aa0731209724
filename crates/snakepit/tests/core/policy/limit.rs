//! A worker gets as many calls at a time as the worker can use.

use snakepit::{Snakepit, Value, args};
use tokio::task::JoinSet;

use crate::support::{Pit, SOON, until, until_within, worker};

/// Starts callers that call without a pause.
fn load(pit: &Snakepit, callers: usize, command: &'static str) -> JoinSet<()> {
    let mut load = JoinSet::new();
    for _ in 0..callers {
        let pit = pit.clone();
        load.spawn(async move {
            loop {
                let answer = match command {
                    "waits" => pit.call::<Value>(command, args! { seconds: 0.005 }).await,
                    _ => pit.call::<Value>(command, args! { rounds: 20_000 }).await,
                };
                answer.expect("no call fails");
            }
        });
    }
    load
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_worker_gets_many_calls_and_a_computing_one_few() {
    let pit = Pit::start(worker("threads.py").workers(1).adaptive_concurrency(1..=16)).await;
    let pool = pit.pools()[0].clone();
    let at_a_time = || pool.workers()[0].concurrency;
    assert_eq!(at_a_time(), 1, "it begins with the fewest");
    let waiting = load(&pit, 32, "waits");
    until("it is given many at a time", || at_a_time() >= 12).await;
    drop(waiting);
    until("all is quiet", || pool.in_flight() == 0).await;
    let computing = load(&pit, 32, "computes");
    // The limit falls step by step, each after many calls.
    until_within(3 * SOON, "it is given few at a time", || at_a_time() <= 5).await;
    drop(computing);
    pit.end_now().await;
}
