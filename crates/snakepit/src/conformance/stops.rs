//! The end of a pool: what is under way may finish, and nothing is waited for for ever.

use std::time::{Duration, Instant};

use super::deaths::{is_free, leave_child};
use super::scene::{SOON, Scene, chain, soon};
use super::{Held, Subject, Verdict, needs};
use crate::{CallError, Value, args};

pub(super) async fn a_stop_lets_calls_finish(subject: &dyn Subject) -> Verdict {
    let scene = Scene::open(subject).await;
    let wait = scene.begin_wait("wait").await;
    let pit = (*scene).clone();
    let stop = tokio::spawn(async move { pit.stop_within(SOON * 2).await });
    soon("the beginning of the stop", scene.stopping()).await;
    assert!(!wait.answer.is_finished(), "the call has ended with the beginning of the stop");
    wait.finish().await;
    assert!(soon("the stop", stop).await.is_ok(), "the stop panics");
    scene.assert_is_over();
    Held
}

pub(super) async fn a_stop_does_not_wait_for_ever(subject: &dyn Subject) -> Verdict {
    needs!(subject, Processes);
    let scene = Scene::open(subject).await;
    let call = scene.begin_stubborn().await;
    let began = Instant::now();
    soon("the stop", scene.stop_within(Duration::from_millis(300))).await;
    assert!(began.elapsed() < SOON / 2, "it took {:?}", began.elapsed());
    let answer = soon("the answer of stubborn", call).await;
    assert!(matches!(answer, Ok(Err(_))), "it comes to {answer:?}");
    scene.assert_is_over();
    Held
}

pub(super) async fn a_stopped_pool_takes_no_call(subject: &dyn Subject) -> Verdict {
    let scene = Scene::open(subject).await;
    scene.assert_serves().await;
    soon("the stop", scene.stop()).await;
    match scene.ask::<Value>("add", args! { a: 1, b: 2 }).await {
        Err(CallError::Stopped) => {}
        Err(error) => panic!("not an error that says so: {}", chain(&error)),
        Ok(value) => panic!("a stopped pool answers {value}"),
    }
    scene.assert_is_over();
    Held
}

pub(super) async fn nothing_that_a_worker_started_outlives_a_stop(subject: &dyn Subject) -> Verdict {
    needs!(subject, Processes);
    let scene = Scene::open(subject).await;
    let lock = leave_child(&scene).await;
    soon("the stop", scene.stop()).await;
    assert!(is_free(&lock), "its child lives on");
    scene.assert_is_over();
    Held
}
