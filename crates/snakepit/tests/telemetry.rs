//! Events of real engines: each is told where it happens, to whoever listens.

mod support;

use snakepit::telemetry::{Event, Subscription, subscribe};
use snakepit::{Value, args};
use support::{Pit, SOON, soon, worker};

/// The events so far, and those that come, until one has this name.
async fn until_named(events: &mut Subscription, name: &str) -> Vec<Event> {
    let mut heard = Vec::new();
    let wait = async {
        loop {
            heard.push(events.next().await);
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

/// The last event of this name.
fn find<'a>(events: &'a [Event], name: &str) -> &'a Event {
    let found = events.iter().rfind(|event| event.name() == name);
    found.unwrap_or_else(|| panic!("no {name} among {:?}", names(events)))
}

/// The fields of an event, as a host reads them from a line of JSON.
fn json(event: &Event) -> serde_json::Value {
    serde_json::to_value(event).expect("it is JSON")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_life_of_an_engine_is_told_in_order() {
    let mut events = subscribe();
    let pit = Pit::start(worker("basic.py").workers(1)).await;
    let run = pit.run().expect("a run").id().to_string();
    pit.end().await;
    let heard = events.drain();
    let ready = json(find(&heard, "snakepit.worker.ready"));
    // The look for the interpreter is a process of its own.
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
    // Who starts the engine may be as fast as who tells of it.
    assert!(["snakepit.worker.ready", "snakepit.pool.ready", "snakepit.pool.stopped"].map(at).is_sorted());
    assert_eq!(at("snakepit.script.shutdown.exit"), heard.len() - 1, "nothing comes after it");
    let spawned = json(&heard[at("snakepit.worker.spawn")]);
    assert_eq!(spawned["run"], run);
    assert!(spawned["pid"].as_u64().is_some_and(|pid| pid > 1), "{spawned}");
    let cleaned = json(find(&heard, "snakepit.cleanup.success"));
    assert_eq!((&cleaned["run"], &cleaned["killed"]), (&run.into(), &0.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_death_of_a_worker_is_told_with_its_autopsy() {
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
