//! An engine that waits until its pools are ready.

use std::time::Duration;

use snakepit::adapter::Mock;
use snakepit::{CallError, PoolOptions, Snakepit, Value, args};
use tokio::time::Instant;

/// Returns a pool with one mock worker whose warm-up takes this long.
fn slow_pool(name: &str, warm_up: Duration) -> PoolOptions {
    let mock = Mock::new().command("warm_up", move |_| async move {
        tokio::time::sleep(warm_up).await;
        Ok(Value::Nil)
    });
    snakepit::mock(mock).name(name).workers(1).warm_up("warm_up", args! {})
}

#[tokio::test(start_paused = true)]
async fn all_pools_share_the_timeout_of_await_ready() {
    let pools = [slow_pool("quick", Duration::from_secs(2)), slow_pool("slow", Duration::from_secs(4))];
    let builder = pools.into_iter().fold(Snakepit::builder(), snakepit::Builder::pool);
    let pit = builder.start_in_background().await.expect("an engine");
    let began = Instant::now();
    let timeout = Duration::from_secs(3);
    let error = pit.await_ready(timeout).await.expect_err("the second pool needs four seconds");
    assert!(matches!(&error, CallError::NoWorkers { pool, .. } if pool == "slow"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(4), "it waited for {:?}", began.elapsed());
    pit.await_ready(timeout).await.expect("both pools are ready within the next three seconds");
    pit.stop().await;
}
