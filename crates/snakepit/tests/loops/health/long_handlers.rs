//! Messages that take long are reported; neither these messages nor handlers that block threads make a group unhealthy.
//!
//! About `crates/loops/src/lease/extension.rs`, `crates/loops/src/lease/lease_thread.rs` and
//! `crates/loops/src/handle/message_heartbeat.rs`.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use snakepit::loops::{
    Beats, HandlerFailure, HealthServer, LoopGroup, LoopScope, MainLoop, PoolLoop, PoolLoopOptions,
    RunOptions, Runnable, Watchdog, beat,
};
use snakepit::mailbox::{ReceiveOptions, TypedMessage};
use snakepit::telemetry::{Event, Level, subscribe_to};

use crate::mailboxes::{Gate, Mailboxes, end, run};
use crate::support::{Pit, SOON, soon, until, worker};

/// Requests a probe without a runtime. Returns its status and its JSON.
fn probe(address: SocketAddr, path: &str) -> (u16, Value) {
    let mut stream = std::net::TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(SOON)).expect("a limit");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("asked");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    (status, serde_json::from_str(body).expect("JSON"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_takes_long_is_shown_and_does_not_make_its_group_not_alive() {
    let mut events = subscribe_to(Level::Warn);
    let mailboxes = Mailboxes::memory();
    let mut gate = Gate::new();
    let main = Arc::new(gate.main_loop("main", &mailboxes.requests));
    let watchdog = Watchdog::new().message_limit(Duration::from_millis(100));
    let group = Arc::new(LoopGroup::new("group").with(main).watchdog(watchdog));
    let server = HealthServer::start(Arc::clone(&group), 0).await.expect("a port");
    let scope = LoopScope::start(Arc::clone(&group), RunOptions::new());
    mailboxes.send(json!("long")).await;
    gate.begun().await;
    let stuck = async { while !matches!(events.next().await, Some(Event::LoopStuck { .. })) {} };
    soon("the watchdog tells of it", stuck).await;
    let (status, body) = probe(server.address(), "/livez");
    assert_eq!(status, 200, "{body}");
    let of_loop = &body["loops"][0];
    assert!(of_loop["heartbeat"].as_f64().is_some_and(|seconds| seconds < 30.0), "{body}");
    assert!(of_loop["oldest"].as_f64().is_some_and(|seconds| seconds >= 0.1), "{body}");
    let [message] = &of_loop["messages"].as_array().expect("a list")[..] else { panic!("{body}") };
    assert!(message["id"].is_string() && message["lasted"].as_f64().is_some_and(|seconds| seconds >= 0.1));
    gate.let_through(1);
    assert!(scope.end(SOON).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_outlasts_its_lease_is_told_again_each_time_that_its_time_has_doubled() {
    let mut events = subscribe_to(Level::Warn);
    let mailboxes = Mailboxes::memory();
    let mut gate = Gate::new();
    let options = RunOptions::new().visibility_timeout(Duration::from_millis(100));
    let scope = run(gate.main_loop("main", &mailboxes.requests), options).await;
    mailboxes.send(json!("long")).await;
    gate.begun().await;
    let told = async {
        let mut told = Vec::new();
        while told.len() < 3 {
            if let Some(Event::LoopMessageSlow { name, lasted, .. }) = events.next().await {
                assert_eq!(&*name, "main");
                told.push(lasted);
            }
        }
        told
    };
    let told = soon("it is told", told).await;
    assert!(told[0] >= Duration::from_millis(100) && told[2] >= Duration::from_millis(400), "{told:?}");
    gate.let_through(1);
    end(scope).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_beats_is_alive_whatever_limit_its_watchdog_has() {
    let mailboxes = Mailboxes::memory();
    let (beats, ends) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (of_handler, over) = (Arc::clone(&beats), Arc::clone(&ends));
    let main = MainLoop::new("main", Arc::clone(&mailboxes.requests), move |_: TypedMessage<i64>| {
        let (beats, over) = (Arc::clone(&of_handler), Arc::clone(&over));
        async move {
            let elsewhere = Beats::current().expect("this is a handler");
            while !over.load(Ordering::SeqCst) {
                if beats.load(Ordering::SeqCst) {
                    beat();
                    elsewhere.beat();
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            Ok::<_, HandlerFailure>(())
        }
    });
    let main = Arc::new(main);
    let watchdog = Watchdog::new().liveness_limit(Duration::from_millis(200));
    let group = Arc::new(LoopGroup::new("group").with(main.clone()).watchdog(watchdog));
    let scope = LoopScope::start(Arc::clone(&group), RunOptions::new());
    mailboxes.send(json!(1)).await;
    until("it is quiet for too long", || !group.is_alive()).await;
    beats.store(true, Ordering::SeqCst);
    until("it beats", || group.is_alive()).await;
    beats.store(false, Ordering::SeqCst);
    until("it is quiet again", || !group.is_alive()).await;
    ends.store(true, Ordering::SeqCst);
    assert!(scope.end(SOON).await);
    // Outside a handler there is nothing to report.
    beat();
    assert!(Beats::current().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_loop_beats_with_the_progress_of_its_worker() {
    let pit = Pit::start(worker("progress.py").workers(1)).await;
    let mailboxes = Mailboxes::memory();
    let options = PoolLoopOptions::new("wait_for");
    let waits = PoolLoop::new(&pit, Arc::clone(&mailboxes.requests), &options).expect("a pool");
    let scope = run(waits, RunOptions::new()).await;
    let path = pit.file("go");
    mailboxes.ask(json!({ "path": path })).await;
    let control = scope.runnable().control().clone();
    let beaten = || control.in_flight_messages().first().is_some_and(|held| held.last_beat > held.since);
    until("its worker has told of progress", beaten).await;
    std::fs::write(&path, "").expect("written");
    assert_eq!(mailboxes.reply().await.read::<String>().expect("text"), "done");
    end(scope).await;
    pit.end().await;
}

/// Handlers that block their threads until the test opens this.
#[derive(Default)]
struct Blocked {
    state: Mutex<(usize, bool)>,
    changed: Condvar,
}

impl Blocked {
    fn block(&self) {
        let mut state = self.state.lock().expect("no panic");
        state.0 += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| !state.1).expect("no panic"));
    }

    fn until_blocked(&self, handlers: usize) {
        let state = self.state.lock().expect("no panic");
        let (state, waited) =
            self.changed.wait_timeout_while(state, SOON, |state| state.0 < handlers).expect("no panic");
        assert!(!waited.timed_out(), "{} of {handlers} handlers block", state.0);
    }

    fn open(&self) {
        self.state.lock().expect("no panic").1 = true;
        self.changed.notify_all();
    }
}

/// Returns a loop of four handlers, for a runtime of two threads.
fn blocking_loop(blocked: &Arc<Blocked>, mailboxes: &Mailboxes) -> MainLoop {
    let blocked = Arc::clone(blocked);
    let handler = move |request: TypedMessage<Value>| {
        let blocked = Arc::clone(&blocked);
        async move {
            blocked.block();
            Ok::<_, HandlerFailure>(request.delivery_count)
        }
    };
    MainLoop::new("blocking", Arc::clone(&mailboxes.requests), handler).concurrency(4).prefetch(2)
}

fn two_threads() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

#[test]
fn handlers_that_block_all_threads_of_their_runtime_lose_no_lease() {
    for mailboxes in Mailboxes::both() {
        let (theirs, ours) = (two_threads(), two_threads());
        let blocked = Arc::new(Blocked::default());
        for number in 0..6 {
            ours.block_on(mailboxes.ask(json!(number)));
        }
        let options = RunOptions::new().visibility_timeout(Duration::from_secs(1));
        let scope = theirs.block_on(run(blocking_loop(&blocked, &mailboxes), options));
        blocked.until_blocked(2);
        // For the length of four leases, another receiver waits for lost messages.
        let receive = ReceiveOptions::new().max_messages(10).wait(Duration::from_secs(4));
        let lost = ours.block_on(mailboxes.requests.receive(receive)).expect("received");
        assert!(lost.is_empty(), "{}: {lost:?}", mailboxes.kind);
        blocked.open();
        let deliveries: Vec<u32> =
            (0..6).map(|_| ours.block_on(mailboxes.reply()).read().expect("a number")).collect();
        assert_eq!(deliveries, [1; 6], "{}: each was delivered once", mailboxes.kind);
        theirs.block_on(end(scope));
        assert_eq!(
            ours.block_on(mailboxes.count()),
            snakepit::mailbox::MessageCounts::default(),
            "{}",
            mailboxes.kind
        );
    }
}

#[test]
fn probes_are_answered_while_handlers_block_all_threads_of_their_runtime() {
    let mailboxes = Mailboxes::memory();
    let (theirs, ours) = (two_threads(), two_threads());
    let blocked = Arc::new(Blocked::default());
    let group = Arc::new(LoopGroup::new("group").with(Arc::new(blocking_loop(&blocked, &mailboxes))));
    let server = theirs.block_on(HealthServer::start(Arc::clone(&group), 0)).expect("a port");
    ours.block_on(mailboxes.send_numbers(4));
    let scope = theirs.block_on(async { LoopScope::start(Arc::clone(&group), RunOptions::new()) });
    blocked.until_blocked(2);
    assert_eq!(probe(server.address(), "/livez").0, 200);
    assert_eq!(probe(server.address(), "/readyz").0, 200);
    blocked.open();
    assert!(theirs.block_on(scope.end(SOON)));
}
