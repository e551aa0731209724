//! Workers that serve HTTP while another program on the machine is hostile.
//!
//! About `crates/adapters/src/http/listen_address.rs`, `crates/adapters/src/listener/sockets.rs` and
//! `crates/adapters/src/socket_dir.rs`.

use std::io::Read;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
use std::path::Path;
use std::time::Duration;

use snakepit::adapter::Program;
use snakepit::adapter::http::HttpWorker;
use snakepit::{CallError, PoolOptions, Snakepit, Value, args};

use crate::support::{self, Pit, chain, soon};

fn server(words: &[&str]) -> PoolOptions {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/workers/http_server.py");
    let words = words.iter().map(|word| (*word).to_owned());
    let argv = ["python3".to_owned(), file.to_string_lossy().into_owned()].into_iter().chain(words);
    snakepit::http(HttpWorker::new(Program::new(argv)).prefix("/commands")).name("server").workers(1)
}

/// Accepts one connection, and returns what is sent on it within a moment.
fn taken(thief: &TcpListener) -> Vec<u8> {
    thief.set_nonblocking(true).expect("a flag");
    let Ok((mut victim, _)) = thief.accept() else { return Vec::new() };
    victim.set_nonblocking(false).expect("a flag");
    victim.set_read_timeout(Some(Duration::from_secs(2))).expect("a limit");
    let mut bytes = vec![0; 1000];
    let length = victim.read(&mut bytes).unwrap_or(0);
    bytes.truncate(length);
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_another_process_holds_receives_nothing() {
    let thief = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = thief.local_addr().expect("an address").port();
    let home = tempfile::tempdir().expect("a directory");
    let custody = snakepit::custody::CustodyOptions::default().state_dir(home.path());
    let start = Snakepit::builder().pool(server(&["announces", &port.to_string()])).custody(custody).start();
    let told = chain(&soon("the start", start).await.expect_err("not its port"));
    assert!(told.contains("no process of this worker holds the socket"), "{told}");
    assert!(told.contains("SNAKEPIT_SOCKET"), "{told}");
    assert_eq!(taken(&thief), b"");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_on_the_other_address_family_receives_nothing() {
    let pit = Pit::start(server(&["port"])).await;
    let port: u16 = soon("the call", pit.call("port", args! {})).await.expect("a port");
    let Ok(thief) = TcpListener::bind((Ipv6Addr::LOCALHOST, port)) else {
        support::unproven("there is no IPv6 here");
        return pit.end().await;
    };
    let before = pit.pools()[0].workers()[0].pid;
    soon("the call", pit.call::<Value>("deafen", args! {})).await.expect("it listens no more");
    // Its connections are gone, too. The worker is replaced, and no other process was called meanwhile.
    let pid: i32 = loop {
        match soon("a call", pit.call::<i32>("pid", args! {})).await {
            Ok(pid) => break pid,
            Err(CallError::Remote(_)) => {}
            Err(error) => panic!("{}", chain(&error)),
        }
    };
    assert_ne!(Some(pid), before.map(snakepit::custody::Pid::as_raw));
    assert_eq!(taken(&thief), b"");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_found_wherever_it_listens() {
    for mode in ["own_socket", "port", "v6", "forked"] {
        if mode == "v6" && TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
            support::unproven("there is no IPv6 here");
            continue;
        }
        let pit = Pit::start(server(&[mode])).await;
        for _ in 0..3 {
            let answer = soon(mode, pit.call::<Vec<i64>>("echo", args![1])).await;
            assert_eq!(answer.unwrap_or_else(|error| panic!("{mode}: {}", chain(&error))), [1]);
        }
        pit.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_offered_socket_is_in_a_private_directory_and_goes_away() {
    let pit = Pit::start(server(&["own_socket"])).await;
    let seen: Vec<String> = soon("the call", pit.call("environment", args! {})).await.expect("names");
    assert!(
        seen.contains(&"SNAKEPIT_SOCKET".to_owned()) && !seen.contains(&"SNAKEPIT_SECRET".to_owned()),
        "{seen:?}"
    );
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_never_leaves_its_prefix() {
    let pit = Pit::start(server(&["port"])).await;
    let error = soon("the call", pit.call::<Value>("../echo", args! {})).await.expect_err("refused");
    assert!(chain(&error).contains("leads out of its path"), "{}", chain(&error));
    let answer: Vec<i64> = soon("the call", pit.call("echo", args![1])).await.expect("as before");
    assert_eq!(answer, [1]);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_error_is_shortened() {
    let pit = Pit::start(server(&["port"])).await;
    let error =
        soon("the call", pit.call::<Value>("long_error", args! { size: 64 << 20 })).await.expect_err("500");
    let message = &error.remote().expect("an error of the worker").message;
    assert!(message.starts_with("[1,1,1,") && message.len() < 100_000, "{}", message.len());
    let answer: Vec<i64> = soon("the call", pit.call("echo", args![1])).await.expect("as before");
    assert_eq!(answer, [1]);
    pit.end().await;
}

fn examples() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/http")
}

#[expect(clippy::disallowed_methods, reason = "asks whether a program is there, as a shell would")]
fn runs_here(program: &str, arguments: &[&str]) -> bool {
    std::process::Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}

/// Calls a worker of the examples, if it can run here.
async fn example(needs: (&str, &[&str]), argv: &[&str], command: &str) {
    if !runs_here(needs.0, needs.1) {
        return support::unproven(&format!("{} {:?} does not run here", needs.0, needs.1));
    }
    let program = Program::new(argv.iter().copied()).current_dir(examples());
    let pit = Pit::start(snakepit::http(program).name("example").workers(1)).await;
    let answer = soon(command, pit.call::<Value>(command, args! { a: 1, b: 2 })).await;
    let answer = answer.unwrap_or_else(|error| panic!("{argv:?}: {}", chain(&error)));
    assert!(answer.as_f64() == Some(3.0) || answer["b"].as_i64() == Some(2), "{argv:?}: {answer}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_in_node_serves_on_the_offered_socket() {
    example(("node", &["--version"]), &["node", "worker.mjs"], "add").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_under_uvicorn_serves_on_the_offered_socket() {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/bin/python");
    let python = python.to_string_lossy();
    example((&python, &["-c", "import fastapi, uvicorn"]), &[&python, "worker.py"], "add").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_under_gunicorn_serves_on_the_offered_socket() {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/bin/python");
    let python = python.to_string_lossy();
    let argv = [&*python, "-m", "gunicorn", "-c", "gunicorn.conf.py", "application:app"];
    example((&python, &["-c", "import gunicorn"]), &argv, "echo").await;
}
