//! Pools grow and shrink while they serve.
//!
//! About `crates/core/src/supervisor/main_loop.rs` and `crates/core/src/supervisor/removal.rs`.

use snakepit::adapter::Mock;
use snakepit::{CallError, Snakepit, args};

use crate::support::{self, Pit, rounds, soon, until, worker};

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_grows_and_shrinks_while_it_serves() {
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    let pool = pit.pools()[0].clone();
    let caller = pit.clone();
    let calls = tokio::spawn(async move {
        let mut served = 0u32;
        loop {
            match caller.call::<u32>("echo", args! { value: served }).await {
                Ok(_) => served += 1,
                Err(CallError::Stopped) => return served,
                Err(error) => panic!("{error}"),
            }
        }
    });
    for workers in [4, 2, 3, 1, 2] {
        pool.scale(workers);
        until("it has its size", || pool.workers().len() == workers).await;
    }
    soon("ready", pool.await_ready(support::SOON)).await.expect("ready");
    pit.stop().await;
    assert!(soon("the calls", calls).await.expect("no error") > 0);
    pit.prove_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_shrinks_lets_calls_finish() {
    let pit = Pit::start(worker("hostile.py").workers(2)).await;
    let pool = pit.pools()[0].clone();
    let call = || tokio::spawn(pit.call::<f64>("sleep", args! { seconds: 1.0 }).into_future());
    let calls = [call(), call()];
    until("both are under way", || pool.in_flight() == 2).await;
    pool.scale(0);
    for call in calls {
        assert!(soon("a call", call).await.expect("no panic").is_ok());
    }
    until("nobody is left", || pit.run().expect("a run").workers().is_empty()).await;
    pool.scale(1);
    let waits = pit.call::<u32>("echo", args! { value: 1 });
    assert_eq!(soon("it waits for the worker that starts", waits).await.expect("served"), 1);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_pools_serve_side_by_side() {
    let builder = (0..6).fold(Snakepit::builder(), |builder, n| {
        builder.pool(worker("hostile.py").name(format!("pool-{n}")).workers(1))
    });
    let pit = Pit::build(builder).await;
    let calls = (0..60).map(|n| {
        let pool = format!("pool-{}", n % 6);
        pit.call::<u32>("echo", args! { value: n }).pool(&pool).into_future()
    });
    for (n, answer) in soon("the calls", futures_util::future::join_all(calls)).await.into_iter().enumerate()
    {
        assert_eq!(answer.expect("a value"), n as u32);
    }
    assert!(pit.pools().iter().all(|pool| pool.workers()[0].calls == 10));
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_of_mocks_that_is_resized_constantly_loses_no_worker() {
    let mock =
        Mock::new().command("echo", |args| async move { Ok(args.get("value").cloned().unwrap_or_default()) });
    let pit = Snakepit::builder().pool(snakepit::mock(mock).workers(2)).start().await.expect("an engine");
    let pool = pit.pools()[0].clone();
    for round in 0..rounds(2000) {
        pool.scale(1 + round % 5);
        let value: u32 = soon("a call", pit.call("echo", args! { value: 7 })).await.expect("a value");
        assert_eq!(value, 7);
    }
    pool.scale(3);
    until("it has its size", || pool.workers().len() == 3).await;
    soon("the stop", pit.stop()).await;
}
