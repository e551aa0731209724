//! Sessions: which worker serves them, what they keep, and how they end.

use std::collections::HashSet;
use std::time::Duration;

use snakepit::pool::{Affinity, LostSessions};
use snakepit::telemetry::Event;
use snakepit::{CallError, PoolOptions, Snakepit, Value, args};

use crate::support::{self, Pit, lines, rounds, soon, until, worker};

type Who = (Option<String>, u32);

fn pool() -> PoolOptions {
    worker("sessions.py").workers(2)
}

async fn who(pit: &Pit, session: &str) -> u32 {
    let (id, pid): Who = soon("who", pit.call("who", args! {}).session(session)).await.expect("who");
    assert_eq!(id.as_deref(), Some(session));
    pid
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sessions_id_and_the_metadata_reach_python() {
    let pit = Pit::start(pool()).await;
    who(&pit, "s-1").await;
    let (id, _): Who = soon("who", pit.call("who", args! {})).await.expect("who");
    assert_eq!(id, None);
    let call = pit.call::<Value>("metadata", args! {}).metadata("trace", "42").metadata("user", "ü");
    let metadata = soon("metadata", call).await.expect("a map");
    assert_eq!((metadata["trace"].as_str(), metadata["user"].as_str()), (Some("42"), Some("ü")));
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hint_keeps_a_session_at_its_worker_while_that_is_free() {
    let pit = Pit::start(pool()).await;
    let first = who(&pit, "a").await;
    for _ in 0..20 {
        assert_eq!(who(&pit, "a").await, first);
    }
    // While its worker is busy, another one serves it.
    let busy = tokio::spawn(pit.call::<Who>("slow_who", args! { seconds: 1.0 }).session("a").into_future());
    until("it is busy", || pit.pools()[0].in_flight() == 1).await;
    assert_ne!(who(&pit, "a").await, first);
    assert_eq!(soon("the busy one", busy).await.expect("no panic").expect("who").1, first);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_strict_session_waits_for_its_worker() {
    let pit = Pit::start(pool().affinity(Affinity::StrictQueue)).await;
    let first = who(&pit, "a").await;
    let call =
        || tokio::spawn(pit.call::<Who>("slow_who", args! { seconds: 0.2 }).session("a").into_future());
    let calls: Vec<_> = (0..4).map(|_| call()).collect();
    for call in calls {
        assert_eq!(soon("a call", call).await.expect("no panic").expect("who").1, first);
    }
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_strict_session_has_one_worker_from_its_first_two_calls_on() {
    let pit = Pit::start(pool().affinity(Affinity::StrictQueue)).await;
    for round in 0..rounds(200) {
        let session = format!("s-{round}");
        let call = || pit.call::<Who>("who", args! {}).session(session.as_str()).into_future();
        let calls = (0..4).map(|_| tokio::spawn(call()));
        let mut pids = HashSet::new();
        for call in calls.collect::<Vec<_>>() {
            pids.insert(soon("a call", call).await.expect("no panic").expect("who").1);
        }
        assert_eq!(pids.len(), 1, "session {session} was served by {pids:?}");
    }
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_strict_session_that_must_not_wait_fails_at_once() {
    let pit = Pit::start(pool().affinity(Affinity::StrictFailFast)).await;
    let first = who(&pit, "a").await;
    let busy = tokio::spawn(pit.call::<Who>("slow_who", args! { seconds: 1.0 }).session("a").into_future());
    until("it is busy", || pit.pools()[0].in_flight() == 1).await;
    let error = soon("the call", pit.call::<Who>("who", args! {}).session("a")).await.expect_err("busy");
    assert!(matches!(&error, CallError::SessionBusy { session, .. } if session == "a"), "{error}");
    assert_ne!(who(&pit, "b").await, first);
    assert_eq!(soon("the busy one", busy).await.expect("no panic").expect("who").1, first);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answered_call_does_not_block_the_next_one_of_its_session() {
    let pit = Pit::start(pool().affinity(Affinity::StrictFailFast)).await;
    let first = who(&pit, "a").await;
    for _ in 0..rounds(5000) {
        assert_eq!(who(&pit, "a").await, first);
    }
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_bound_to_a_worker_that_leaves_go_to_the_others_at_once() {
    let pit = Pit::start(pool().affinity(Affinity::StrictQueue)).await;
    let pool = pit.pools()[0].clone();
    let first = who(&pit, "a").await;
    // A call that is at its worker but not started would go to another one instead of failing.
    let started = pit.file("started");
    let arguments = args! { seconds: 600.0, started: started.as_str() };
    let busy = tokio::spawn(pit.call::<Who>("slow_who", arguments).session("a").into_future());
    until("it is started", || !lines(&started).is_empty()).await;
    // The idle worker leaves first. With one worker, the bound calls have no other worker.
    let bound: Vec<_> =
        (0..3).map(|_| tokio::spawn(pit.call::<Who>("who", args! {}).session("a").into_future())).collect();
    until("they wait", || pool.queued() == 3).await;
    support::kill(first);
    let error = soon("the busy one", busy).await.expect("no panic").expect_err("a death");
    assert!(error.autopsy().is_some(), "{error}");
    let mut pids = HashSet::new();
    for call in bound {
        pids.insert(soon("a bound call", call).await.expect("no panic").expect("who").1);
    }
    assert!(pids.len() == 1 && !pids.contains(&first), "{pids:?}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nested_call_of_a_strict_session_is_served_inside() {
    let pits = std::sync::Arc::new(std::sync::OnceLock::<Snakepit>::new());
    let inner = std::sync::Arc::clone(&pits);
    let builder = Snakepit::builder()
        .pool(worker("sessions.py").workers(1).affinity(Affinity::StrictQueue))
        .tool("again", move |(): (), _| {
            let pit = inner.get().expect("a pit").clone();
            async move { pit.call::<Who>("who", args! {}).session("a").await.map(|who| who.1) }
        });
    let pit = Pit::build(builder).await;
    assert!(pits.set((*pit).clone()).is_ok());
    let call = pit.call::<u32>("ask", args! { tool: "again" }).session("a");
    let served = soon("the nested call", call.timeout(Duration::from_secs(5))).await;
    assert_eq!(served.expect("served"), who(&pit, "a").await);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_survives_the_worker_and_the_local_memory_does_not() {
    let pit = Pit::start(worker("sessions.py").workers(1)).await;
    let call =
        |name: &str, args: snakepit::value::Args| pit.call::<Value>(name, args).session("a").into_future();
    soon("put", call("put", args! { key: "x", value: vec![1, 2] })).await.expect("kept");
    soon("put", call("put", args! { key: "y", value: "gone" })).await.expect("kept");
    soon("remember", call("remember", args! { value: 7 })).await.expect("remembered");
    assert_eq!(soon("recall", call("recall", args! {})).await.expect("a value").as_i64(), Some(7));
    soon("die", call("die", args! {})).await.expect_err("a death");
    assert!(soon("recall", call("recall", args! {})).await.expect("a value").is_nil());
    assert_eq!(soon("get", call("get", args! { key: "x" })).await.expect("a value")[1].as_i64(), Some(2));
    let deleted = soon("delete", call("delete", args! { key: "y" })).await.expect("deleted");
    assert_eq!(deleted.as_bool(), Some(true));
    assert_eq!(soon("keys", call("keys", args! {})).await.expect("keys").as_list().map(<[_]>::len), Some(1));
    // Another session has a store of its own.
    let other = pit.call::<Value>("keys", args! {}).session("b");
    assert_eq!(soon("keys", other).await.expect("keys").as_list().map(<[_]>::len), Some(0));
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_full_refuses_more_and_keeps_what_it_has() {
    let pit = Pit::start(pool().workers(1)).await;
    let put = |session: &'static str, key: &'static str, length: usize| {
        let value = snakepit::value::Blob::from(vec![7; length]);
        pit.call::<()>("put", args! { key: key, value: value }).session(session).into_future()
    };
    soon("put", put("a", "x", 10 << 20)).await.expect("room");
    let error = soon("put", put("a", "y", 7 << 20)).await.expect_err("no room");
    let remote = error.remote().expect("an error of the command");
    assert_eq!(remote.type_name.as_deref(), Some("snakepit.HostError"), "{remote}");
    assert!(remote.message.contains("session a would keep 178"), "{}", remote.message);
    assert!(remote.message.contains("16777216 is the limit"), "{}", remote.message);
    let keys = soon("keys", pit.call::<Vec<String>>("keys", args! {}).session("a")).await.expect("keys");
    assert_eq!(keys, ["x"]);
    soon("put", put("b", "y", 7 << 20)).await.expect("another session has its own room");
    soon("put", put("a", "x", 8 << 20)).await.expect("a smaller value in its place");
    soon("put", put("a", "y", 7 << 20)).await.expect("now there is room");
    let gone = soon("delete", pit.call::<bool>("delete", args! { key: "x" }).session("a")).await;
    assert!(gone.expect("an answer"));
    soon("put", put("a", "z", 8 << 20)).await.expect("room again");
    let value: snakepit::value::Blob =
        soon("get", pit.call("get", args! { key: "z" }).session("a")).await.expect("what was kept");
    assert_eq!(value.len(), 8 << 20);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_session_is_told_to_its_worker() {
    let pit = Pit::start(worker("sessions.py").workers(1)).await;
    let path = pit.file("ends");
    let _: Value = soon("log", pit.call("log_ends", args! { path: path.as_str() })).await.expect("logged");
    let _: Value =
        soon("remember", pit.call("remember", args! { value: 7 }).session("a")).await.expect("remembered");
    let pool = &pit.pools()[0];
    assert_eq!(pool.sessions().len(), 1);
    assert!(pool.end_session("a"));
    assert!(!pool.end_session("a"));
    until("its end is told", || lines(&path) == ["a 7"]).await;
    assert!(pool.sessions().is_empty());
    assert!(
        soon("recall", pit.call::<Value>("recall", args! {}).session("a")).await.expect("a value").is_nil()
    );
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unused_session_expires() {
    let pit = Pit::start(worker("sessions.py").workers(1).session_ttl(Duration::from_millis(500))).await;
    let path = pit.file("ends");
    let _: Value = soon("log", pit.call("log_ends", args! { path: path.as_str() })).await.expect("logged");
    let _: Value =
        soon("put", pit.call("put", args! { key: "x", value: 1 }).session("a")).await.expect("kept");
    until("its end is told", || lines(&path) == ["a None"]).await;
    assert!(pit.pools()[0].sessions().is_empty());
    let kept: Value = soon("get", pit.call("get", args! { key: "x" }).session("a")).await.expect("a value");
    assert!(kept.is_nil(), "the store ended with it: {kept}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_does_not_expire_while_a_call_of_it_runs() {
    let pit = Pit::start(worker("sessions.py").workers(1).session_ttl(Duration::from_millis(200))).await;
    let _: Value =
        soon("put", pit.call("put", args! { key: "x", value: 1 }).session("a")).await.expect("kept");
    // Several times as long as an unvisited session lives.
    let _: Value =
        soon("slow", pit.call("slow_who", args! { seconds: 1.5 }).session("a")).await.expect("answered");
    let kept: i64 = soon("get", pit.call("get", args! { key: "x" }).session("a")).await.expect("a value");
    assert_eq!(kept, 1);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_beyond_the_limit_are_rejected() {
    let all = rounds(10_000);
    let pit = Pit::start(pool().max_sessions(all).queue_limit(all).queue_timeout(support::SOON)).await;
    let calls = (0..all).map(|n| pit.call::<Who>("who", args! {}).session(format!("s-{n}")).into_future());
    for answer in soon("the calls", futures_util::future::join_all(calls)).await {
        answer.expect("who");
    }
    assert_eq!(pit.pools()[0].sessions().len(), all);
    let error = pit.call::<Who>("who", args! {}).session("one more").await.expect_err("too many");
    assert!(matches!(error, CallError::TooManySessions { limit, .. } if limit == all), "{error}");
    assert!(error.to_string().contains("max_sessions"), "{error}");
    assert!(pit.pools()[0].end_session("s-7"));
    who(&pit, "one more").await;
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_reaches_only_the_store_of_its_calls_session() {
    let pit = Pit::start(pool()).await;
    let put = pit.call::<Value>("put", args! { key: "secret", value: 42 }).session("b");
    soon("put", put).await.expect("kept");
    who(&pit, "a").await;
    for tool in ["get", "set", "delete", "keys"] {
        let of = |session: &'static str| {
            pit.call::<Value>("store_of", args! { session: session, tool: tool, key: "secret", value: 0 })
        };
        for asked in [of("b").session("a"), of("b"), of("")] {
            let error = soon(tool, asked).await.expect_err("it is not its session");
            assert!(error.to_string().contains("session"), "{tool}: {error}");
        }
    }
    let kept: i64 =
        soon("get", pit.call("get", args! { key: "secret" }).session("b")).await.expect("still there");
    assert_eq!(kept, 42);
    let own = args! { session: "b", tool: "keys" };
    let keys: Vec<String> = soon("keys", pit.call("store_of", own).session("b")).await.expect("its own");
    assert_eq!(keys, ["secret"]);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_strict_session_that_loses_its_worker_moves_and_is_reported() {
    let pit = Pit::start(pool().affinity(Affinity::StrictQueue)).await;
    let first = who(&pit, "a").await;
    let mut events = pit.pools()[0].events();
    support::kill(first);
    until("another one serves", || {
        let pids = support::pids(&pit.pools()[0]);
        pids.len() == 2 && !pids.contains(&first)
    })
    .await;
    assert_ne!(who(&pit, "a").await, first);
    let (session, from, to) = support::heard(&mut events, |event| match event {
        Event::SessionMoved { session, from, to, .. } => Some((session, from, to)),
        _ => None,
    })
    .await;
    assert_eq!(&*session, "a");
    assert!(from.starts_with("sessions-") && to.starts_with("sessions-") && from != to, "{from} → {to}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_strict_session_that_loses_its_worker_fails_if_so_configured() {
    for affinity in [Affinity::StrictQueue, Affinity::StrictFailFast] {
        let pit = Pit::start(pool().affinity(affinity).lost_sessions(LostSessions::Fail)).await;
        let pool = pit.pools()[0].clone();
        let first = who(&pit, "a").await;
        support::kill(first);
        until("another one serves", || {
            let pids = support::pids(&pool);
            pids.len() == 2 && !pids.contains(&first)
        })
        .await;
        for _ in 0..2 {
            let call = pit.call::<Who>("who", args! {}).session("a");
            let error = soon("the call", call).await.expect_err("what it had there is gone");
            assert!(matches!(&error, CallError::SessionLost { session, .. } if session == "a"), "{error}");
            assert!(error.to_string().contains("end_session"), "{error}");
        }
        assert!(pool.end_session("a"));
        who(&pit, "a").await;
        pit.end().await;
    }
}
