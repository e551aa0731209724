//! Events of real engines reach every subscriber when they happen.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::StreamExt;
use snakepit::telemetry::{Event, Subscription, subscribe};
use snakepit::{CallError, Snakepit, Value, args};

use crate::support::{self, Pit, SOON, soon, until, worker};

/// Collects the past and coming events until one has this name.
async fn until_named(events: &mut Subscription, name: &str) -> Vec<Event> {
    let mut heard = Vec::new();
    let wait = async {
        loop {
            heard.extend(events.next().await);
            if heard.last().is_some_and(|event| event.name() == name) {
                return;
            }
        }
    };
    let came = tokio::time::timeout(SOON, wait).await;
    assert!(came.is_ok(), "no {name} came, but {:?}", names(&heard));
    heard
}

fn names(events: &[Event]) -> Vec<&'static str> {
    events.iter().map(Event::name).collect()
}

/// Returns the last event with this name.
fn find<'a>(events: &'a [Event], name: &str) -> &'a Event {
    let found = events.iter().rfind(|event| event.name() == name);
    found.unwrap_or_else(|| panic!("no {name} among {:?}", names(events)))
}

/// Returns the fields of an event as a host reads them from a line of JSON.
fn json(event: &Event) -> serde_json::Value {
    serde_json::to_value(event).expect("it is JSON")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_events_of_an_engine_arrive_in_order() {
    let mut events = subscribe();
    let pit = Pit::start(worker("basic.py").workers(1)).await;
    let run = pit.run().expect("a run").id().to_string();
    pit.end().await;
    let heard = events.drain();
    let ready = json(find(&heard, "snakepit.worker.ready"));
    // The search for the interpreter runs in a process of its own.
    let of_worker = |event: &Event| json(event)["worker"] == ready["worker"];
    let at = |name: &str| {
        let its =
            |event: &Event| event.name() == name && (of_worker(event) || json(event)["worker"].is_null());
        heard.iter().rposition(its).unwrap_or_else(|| panic!("no {name} among {:?}", names(&heard)))
    };
    let told = [
        "snakepit.worker.spawn",
        "snakepit.worker.ready",
        "snakepit.script.shutdown.start",
        "snakepit.worker.exit",
        "snakepit.pool.stopped",
        "snakepit.script.shutdown.stop",
        "snakepit.cleanup.start",
        "snakepit.cleanup.success",
        "snakepit.script.shutdown.cleanup",
        "snakepit.script.shutdown.exit",
    ];
    assert!(told.map(at).is_sorted(), "{:?}", names(&heard));
    // The start of the engine may be as fast as the delivery of the events.
    assert!(["snakepit.worker.ready", "snakepit.pool.ready", "snakepit.pool.stopped"].map(at).is_sorted());
    assert_eq!(at("snakepit.script.shutdown.exit"), heard.len() - 1, "nothing comes after it");
    let spawned = json(&heard[at("snakepit.worker.spawn")]);
    assert_eq!(spawned["run"], run);
    assert!(spawned["pid"].as_u64().is_some_and(|pid| pid > 1), "{spawned}");
    let cleaned = json(find(&heard, "snakepit.cleanup.success"));
    assert_eq!((&cleaned["run_id"], &cleaned["killed"]), (&run.into(), &0.into()));
    let shutdown = json(find(&heard, "snakepit.script.shutdown.cleanup"));
    for name in ["snakepit.cleanup.start", "snakepit.cleanup.success"] {
        let event = json(find(&heard, name));
        assert_eq!((&event["scope"], &event["run_id"]), (&"run".into(), &shutdown["run_id"]), "{event}");
    }
    for field in ["run_id", "killed", "took"] {
        assert!(!cleaned[field].is_null() && !shutdown[field].is_null(), "{field}: {cleaned}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_death_of_a_worker_is_reported_with_its_autopsy() {
    let pit = Pit::start(worker("fatal.py").workers(1)).await;
    let mut events = subscribe();
    let call = pit.call::<Value>("dies", args! { path: pit.file("runs"), times: 1 });
    soon("it dies", call).await.expect_err("it dies");
    let heard = until_named(&mut events, "snakepit.worker.died").await;
    let died = json(find(&heard, "snakepit.worker.died"));
    assert_eq!((&died["level"], &died["signal"], &died["calls"]), (&"warn".into(), &9.into(), &1.into()));
    assert!(died["autopsy"].as_str().is_some_and(|text| text.contains("died of SIGKILL")), "{died}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_each_call_is_reported_with_its_outcome() {
    let pit = Pit::start(worker("basic.py").workers(1).name("p")).await;
    let mut events = subscribe();
    let sum: i64 = soon("a call", pit.call("add", args! { a: 1, b: 2 })).await.expect("a sum");
    assert_eq!(sum, 3);
    let failing = pit.call::<Value>("fail", args! { text: "x" });
    soon("a call", failing).await.expect_err("it fails");
    let late = pit.call::<Value>("sleep", args! { seconds: 60.0 }).timeout(Duration::from_millis(100));
    soon("a call", late).await.expect_err("it is late");
    drop(tokio::time::timeout(Duration::ZERO, pit.call::<Value>("pid", args! {})).await);
    let heard = events.drain();
    let stops: Vec<_> = heard.iter().filter(|event| event.name() == "snakepit.call.stop").map(json).collect();
    let outcomes: Vec<_> =
        stops.iter().map(|stop| (stop["command"].as_str(), stop["outcome"].as_str())).collect();
    let expected = [("add", "ok"), ("fail", "failed"), ("sleep", "timed_out"), ("pid", "cancelled")];
    assert_eq!(outcomes, expected.map(|(command, outcome)| (Some(command), Some(outcome))));
    assert_eq!((&stops[0]["pool"], &stops[0]["worker"]), (&"p".into(), &"p-1".into()));
    assert!(stops[2]["took"].as_f64().is_some_and(|took| took >= 0.1), "{}", stops[2]);
    assert!(stops[0]["waited"].as_f64().is_some_and(|waited| waited < 1.0), "{}", stops[0]);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_and_a_queue_timeout_are_reported() {
    let pit = Pit::start(worker("hostile.py").workers(1).queue_limit(1)).await;
    let busy = tokio::spawn(pit.call::<Value>("sleep", args! { seconds: 600.0 }).into_future());
    until("it is busy", || pit.pools()[0].in_flight() == 1).await;
    let mut events = subscribe();
    let call = || pit.call::<Value>("sleep", args! { seconds: 0.0 });
    let waiting = tokio::spawn(call().queue_timeout(Duration::from_millis(300)).into_future());
    until("one waits", || pit.pools()[0].queued() == 1).await;
    let refused = soon("a call", call()).await.expect_err("there is no room");
    assert!(matches!(refused, CallError::Saturated { .. }), "{refused}");
    let waited = soon("a call", waiting).await.expect("no panic").expect_err("it waited too long");
    assert!(matches!(waited, CallError::QueueTimeout { .. }), "{waited}");
    let heard = events.drain();
    assert_eq!(json(find(&heard, "snakepit.queue.full"))["depth"], 1);
    let timeout = json(find(&heard, "snakepit.queue.timeout"));
    assert!(timeout["waited"].as_f64().is_some_and(|waited| waited >= 0.3), "{timeout}");
    let stop = json(find(&heard, "snakepit.call.stop"));
    assert_eq!((&stop["outcome"], &stop["worker"]), (&"queue_timed_out".into(), &serde_json::Value::Null));
    assert!(stop["waited"].as_f64().is_some_and(|waited| waited >= 0.3), "{stop}");
    busy.abort();
    pit.end_now().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_call_reports_its_wait_in_the_queue() {
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    let mut events = subscribe();
    let first = tokio::spawn(pit.call::<Value>("sleep", args! { seconds: 0.3 }).into_future());
    until("it is busy", || pit.pools()[0].in_flight() == 1).await;
    soon("a call", pit.call::<Value>("sleep", args! { seconds: 0.0 })).await.expect("an answer");
    soon("a call", first).await.expect("no panic").expect("an answer");
    let stop = json(find(&events.drain(), "snakepit.call.stop"));
    let seconds = |field: &str| stop[field].as_f64().expect("seconds");
    assert!(seconds("waited") > 0.1 && seconds("took") >= seconds("waited"), "{stop}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_call_is_reported_with_the_reason() {
    let pit = Pit::start(worker("basic.py").workers(1).max_frame(1 << 16)).await;
    let mut events = subscribe();
    let long = pit.call::<Value>("echo", args! { value: "x".repeat(1 << 17) });
    soon("a call", long).await.expect_err("it is too long");
    let refused = json(find(&events.drain(), "snakepit.call.refused"));
    assert_eq!(refused["reason"], "the arguments of echo cannot be sent");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_reported_with_the_items_read() {
    let pit = Pit::start(worker("basic.py").workers(1)).await;
    let mut events = subscribe();
    let whole = pit.stream::<u64>("count", args! { n: 5 }).open().expect("it opens");
    assert_eq!(soon("a stream", whole.collect::<Vec<_>>()).await.len(), 5);
    let mut part = pit.stream::<u64>("count", args! { n: 1000 }).open().expect("it opens");
    for _ in 0..2 {
        soon("an item", part.next()).await.expect("an item").expect("a number");
    }
    drop(part);
    let heard = events.drain();
    let of = |name: &str| heard.iter().filter(|event| event.name() == name).map(json).collect::<Vec<_>>();
    assert_eq!(of("snakepit.stream.opened").len(), 2);
    let ended: Vec<_> = of("snakepit.stream.ended")
        .iter()
        .map(|end| (end["items"].as_u64(), end["outcome"].as_str().map(str::to_owned)))
        .collect();
    assert_eq!(ended, [(Some(5), Some("ok".to_owned())), (Some(2), Some("cancelled".to_owned()))]);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_reported_when_they_open_end_and_expire() {
    let pool = worker("sessions.py").workers(1).session_ttl(Duration::from_millis(300));
    let pit = Pit::start(pool).await;
    let mut events = subscribe();
    for session in ["a", "a", "b"] {
        soon("a call", pit.call::<Value>("who", args! {}).session(session)).await.expect("who");
    }
    assert!(pit.pools()[0].end_session("a"));
    let heard = until_named(&mut events, "snakepit.session.expired").await;
    let of = |name: &str| {
        let named = heard.iter().filter(|event| event.name() == name).map(json);
        named.map(|event| event["session"].as_str().expect("an id").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(of("snakepit.session.opened"), ["a", "b"]);
    assert_eq!(of("snakepit.session.ended"), ["a"]);
    assert_eq!(of("snakepit.session.expired"), ["b"]);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_of_the_host_are_reported_with_their_outcomes() {
    let builder = Snakepit::builder()
        .pool(worker("tools.py").workers(1))
        .tool("fine", |(): (), _| async move { Ok::<_, Infallible>(1) })
        .tool("fails", |(): (), _| async move { Err::<(), _>("the disk is full") });
    let pit = Pit::build(builder).await;
    let mut events = subscribe();
    let ask = |tool: &str| pit.call::<Value>("ask", args! { tool: tool, args: args! {} });
    soon("a call", ask("fine")).await.expect("an answer");
    soon("a call", ask("fails")).await.expect_err("it fails");
    soon("a call", ask("missing")).await.expect_err("there is none");
    let heard = events.drain();
    let told: Vec<_> = heard.iter().filter(|event| event.name() == "snakepit.tool.stop").map(json).collect();
    let outcomes: Vec<_> =
        told.iter().map(|tool| (tool["tool"].as_str(), tool["outcome"].as_str())).collect();
    let expected = [("fine", "ok"), ("fails", "failed"), ("missing", "failed")];
    assert_eq!(outcomes, expected.map(|(tool, outcome)| (Some(tool), Some(outcome))));
    assert_eq!(told[0]["command"], "ask");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn maps_are_reported_chunk_by_chunk() {
    let pit = Pit::start(worker("basic.py").workers(1)).await;
    let mut events = subscribe();
    let map = pit.map::<Value, _>("add", (0..20u64).map(|n| if n == 7 { (n, Some("x")) } else { (n, None) }));
    let outcomes: Vec<_> =
        soon("a map", map.chunk(10).in_order().expect("it begins").collect::<Vec<_>>()).await;
    let failed = outcomes.iter().filter(|outcome| outcome.is_err()).count();
    let heard = events.drain();
    let chunks: Vec<_> =
        heard.iter().filter(|event| event.name() == "snakepit.map.chunk").map(json).collect();
    let sum = |field: &str| chunks.iter().filter_map(|chunk| chunk[field].as_u64()).sum::<u64>();
    assert_eq!((sum("inputs"), sum("failed")), (20, failed as u64));
    assert!(failed > 0 && !chunks.is_empty());
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_loss_of_a_keeper_and_its_replacement_are_reported() {
    let pit = Pit::start(worker("basic.py").workers(1)).await;
    let mut events = subscribe();
    let run = pit.run().expect("a run").clone();
    support::kill(run.keeper_pid().expect("a keeper").as_raw() as u32);
    let heard = until_named(&mut events, "snakepit.keeper.regained").await;
    assert_eq!(json(find(&heard, "snakepit.keeper.lost"))["run"], run.id().to_string());
    pit.end().await;
}
