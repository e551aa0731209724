//! Health probes, requested as an orchestrator requests them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use snakepit::loops::{HealthServer, LoopGroup, LoopScope, RunOptions, Runnable};
use snakepit::mailbox::Mailbox;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::flaky::{Behind, Flaky};
use crate::mailboxes::{Gate, Mailboxes};
use crate::support::{soon, until};

/// Returns the status, and the whole answer.
async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("it listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("asked");
    let mut answer = String::new();
    soon("an answer", stream.read_to_string(&mut answer)).await.expect("text");
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("no status in {answer}")), answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_say_how_a_group_stands() {
    let mailboxes = Mailboxes::memory();
    let gate = Gate::new();
    let flaky = Flaky::new(&mailboxes.requests);
    let mailbox: Arc<dyn Mailbox> = Arc::new(Behind(Arc::clone(&flaky)));
    let main = Arc::new(gate.main_loop("main", &mailbox));
    let group = Arc::new(LoopGroup::new("group").with(main.clone()));
    let server = HealthServer::start(Arc::clone(&group), 0).await.expect("a port");
    let address = server.address();
    assert!(address.ip().is_loopback());
    assert_eq!(get(address, "/startupz").await.0, 503, "not started");
    assert_eq!(get(address, "/readyz").await.0, 503);

    let options = RunOptions::new().wait(Duration::from_millis(20));
    let scope = LoopScope::start(Arc::clone(&group), options);
    soon("it runs", main.control().until_running()).await;
    for path in ["/startupz", "/livez", "/health/live", "/readyz", "/health/ready"] {
        assert_eq!(get(address, path).await.0, 200, "{path}");
    }
    assert_eq!(get(address, "/metrics").await.0, 404);

    group.drain();
    assert_eq!(get(address, "/readyz").await.0, 503, "draining");
    assert_eq!(get(address, "/livez").await.0, 200);
    group.resume();
    assert_eq!(get(address, "/readyz").await.0, 200);

    flaky.set_broken(true);
    until("it has failed", || {
        flaky.failures.load(Ordering::SeqCst) > 0 && main.control().trouble().is_some()
    })
    .await;
    let (status, answer) = get(address, "/health/ready").await;
    assert_eq!(status, 503);
    assert!(answer.contains("the disk is on fire"), "{answer}");
    flaky.set_broken(false);
    until("it works again", || group.is_ready()).await;

    assert!(scope.end(Duration::from_secs(20)).await);
    assert_eq!(get(address, "/readyz").await.0, 503, "ended");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_are_answered_at_any_address_that_is_asked_for() {
    let group = Arc::new(LoopGroup::new("group"));
    let server = HealthServer::start_at(Arc::clone(&group), "0.0.0.0:0").await.expect("an address");
    assert!(server.address().ip().is_unspecified());
    // Any address of this machine works.
    let address = SocketAddr::from(([127, 0, 0, 2], server.address().port()));
    assert_eq!(get(address, "/livez").await.0, 200);
    server.stop().await;
    assert!(HealthServer::start_at(group, "nowhere").await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_clients_do_not_keep_probes_out() {
    let group = Arc::new(LoopGroup::new("group"));
    let server = HealthServer::start(group, 0).await.expect("a port");
    let address = server.address();
    let mut slow = Vec::new();
    for _ in 0..200 {
        let mut stream = tokio::net::TcpStream::connect(address).await.expect("it listens");
        stream.write_all(b"GET /livez HTT").await.expect("half a request");
        slow.push(stream);
    }
    // A request times out after five seconds, and there are three times as many as are served at once.
    let began = std::time::Instant::now();
    let (status, _) = get(address, "/livez").await;
    assert!(status == 200 || status == 503, "{status}");
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    server.stop().await;
}
