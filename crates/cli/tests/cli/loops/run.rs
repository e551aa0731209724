//! `snakepit loop run`: a service from a file that is ended by signals and started again.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use snakepit::mailbox::{Mailbox, MessageCounts, ReceiveOptions, SendOptions, SqliteMailbox};
use tempfile::TempDir;

use crate::support::pty::{CTRL_C, Pty};
use crate::support::{PATIENCE, Running, Scene, finish};

const WORKER: &str = "\
import pathlib
import time

import snakepit

@snakepit.command
def double(n: int):
    time.sleep(0.02)
    return 2 * n

@snakepit.command
def nap(seconds: float):
    pathlib.Path(__file__).with_name(f\"begun-{time.time_ns()}\").touch()
    time.sleep(seconds)
";

const CONFIG: &str = "\
[pool.math]
worker = \"worker.py\"
workers = 2

[loop.doubles]
mailbox = \"sqlite:mail.db#numbers\"
command = \"double\"

[loop.naps]
mailbox = \"sqlite:mail.db#naps\"
command = \"nap\"
pool = \"math\"
visibility_timeout = \"1m\"
wait = \"5s\"

[service]
shutdown_timeout = \"20s\"
";

/// A worker, a configuration and a mailbox in one directory.
struct Service {
    scene: Scene,
    dir: TempDir,
}

impl Service {
    fn new(config: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("worker.py"), WORKER).expect("written");
        std::fs::write(dir.path().join("snakepit.toml"), config).expect("written");
        Self { scene: Scene::new(), dir }
    }

    /// Returns `snakepit loop run -c FILE REST`.
    fn command(&self, rest: &[&str]) -> Command {
        let mut command = self.scene.command(env!("CARGO_BIN_EXE_snakepit"));
        command.args(["loop", "run", "--state-dir"]).arg(self.scene.state_dir());
        command.arg("-c").arg(self.dir.path().join("snakepit.toml")).args(rest);
        command
    }

    fn start(&self, rest: &[&str]) -> Running {
        let mut running = Running::start(&mut self.command(rest));
        running.expect_line("runs");
        running
    }

    fn mailbox(&self, queue: &str) -> SqliteMailbox {
        SqliteMailbox::open_named(self.dir.path().join("mail.db"), queue).expect("opened")
    }

    /// Waits until workers have begun so many naps.
    fn until_begun(&self, wanted: usize) {
        let begun = || {
            let files = std::fs::read_dir(self.dir.path()).expect("the directory");
            files
                .filter(|file| {
                    file.as_ref().expect("a file").file_name().to_string_lossy().starts_with("begun-")
                })
                .count()
        };
        let deadline = Instant::now() + PATIENCE;
        while begun() != wanted {
            assert!(Instant::now() < deadline, "{} naps instead of {wanted}", begun());
            std::thread::yield_now();
        }
    }

    fn refused(&self, rest: &[&str]) -> String {
        let done = finish(&mut self.command(rest));
        done.assert_status(2);
        done.stderr
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

fn count(mailbox: &SqliteMailbox) -> MessageCounts {
    block_on(mailbox.count()).expect("counted")
}

/// Waits until at least so many messages can be received.
#[track_caller]
fn until_visible(mailbox: &SqliteMailbox, wanted: u64) {
    let deadline = Instant::now() + 3 * PATIENCE;
    while count(mailbox).visible < wanted {
        assert!(Instant::now() < deadline, "{:?} instead of {wanted}", count(mailbox));
        std::thread::yield_now();
    }
}

#[track_caller]
fn until_in_flight(mailbox: &SqliteMailbox, wanted: u64) {
    let deadline = Instant::now() + PATIENCE;
    while count(mailbox).in_flight != wanted {
        assert!(Instant::now() < deadline, "{:?} instead of {wanted}", count(mailbox));
        std::thread::yield_now();
    }
}

fn ask(mailbox: &SqliteMailbox, bodies: impl Iterator<Item = String>) {
    let messages = bodies.map(|body| (body.into_bytes(), SendOptions::new().reply_to("replies"))).collect();
    block_on(mailbox.send_all(messages)).expect("sent");
}

#[test]
fn a_service_that_is_stopped_in_the_middle_and_started_again_answers_each_message_once() {
    let service = Service::new(CONFIG);
    let (numbers, replies) = (service.mailbox("numbers"), service.mailbox("replies"));
    ask(&numbers, (0..100).map(|number| number.to_string()));
    let first = service.start(&["doubles"]);
    until_visible(&replies, 10);
    first.signal(Signal::TERM);
    let done = first.finish();
    done.assert_status(0);
    assert!(done.stdout.contains("doubles: ") && done.stdout.contains(": ended, "), "{}", done.stdout);
    let answered = count(&replies).visible;
    let left = count(&numbers);
    assert!(answered < 100, "it was to be stopped in the middle");
    assert_eq!((answered + left.visible, left.in_flight, left.dead), (100, 0, 0), "{left:?}");

    let second = service.start(&["--create"]);
    until_visible(&replies, 100);
    second.signal(Signal::TERM);
    second.finish().assert_status(0);
    assert_eq!(count(&numbers), MessageCounts::default());
    let answers: Vec<i64> = block_on(replies.peek(1_000))
        .expect("a peek")
        .iter()
        .map(|reply| reply.read().expect("a number"))
        .collect();
    let all: BTreeSet<i64> = answers.iter().copied().collect();
    assert_eq!((answers.len(), all), (100, (0..100).map(|number| 2 * number).collect()));
    service.scene.assert_clean();
}

#[test]
fn a_second_signal_cancels_what_is_in_flight_and_gives_it_back() {
    let service = Service::new(CONFIG);
    let naps = service.mailbox("naps");
    ask(&naps, ["600".to_owned()].into_iter());
    let running = service.start(&["naps", "--every", "100ms"]);
    until_in_flight(&naps, 1);
    // A loop whose message no worker has begun ends with the first signal.
    service.until_begun(1);
    running.signal(Signal::TERM);
    let mut running = running;
    running.expect_line("drains");
    running.signal(Signal::TERM);
    running.finish().assert_status(128 + 15);
    assert_eq!(count(&naps).visible, 1);
    service.scene.assert_clean();
}

/// The concurrency of the loop in [`BUSY`].
const CALLS: u64 = 8;
const STOPS: usize = 5;

/// A loop with many more calls than workers.
const BUSY: &str = "\
[pool.math]
worker = \"worker.py\"
workers = 1
cancel_grace = { ask = \"10ms\", raise = \"10ms\", terminate = \"10ms\" }

[loop.naps]
mailbox = \"sqlite:mail.db#naps\"
command = \"nap\"
concurrency = 8
max_deliveries = 10
visibility_timeout = \"2s\"
";

/// Starts and stops a busy service several times. `stop` gets the service when its worker has begun one message, and
/// the calls of the others wait.
fn stop_repeatedly(rest: &[&str], stop: impl Fn(Running)) {
    let service = Service::new(BUSY);
    let naps = service.mailbox("naps");
    ask(&naps, (0..CALLS).map(|_| "600".to_owned()));
    for life in 1..=STOPS {
        let running = service.start(rest);
        until_in_flight(&naps, CALLS);
        service.until_begun(life);
        stop(running);
        until_visible(&naps, CALLS);
    }
    let received = block_on(naps.receive(ReceiveOptions::new().max_messages(10))).expect("received");
    assert_eq!(received.len() as u64, CALLS, "nothing is buried");
    let counted: u32 = received.iter().map(|message| message.delivery_count - 1).sum();
    assert_eq!(counted, STOPS as u32, "the worker has begun one message in each life");
    service.scene.assert_clean();
}

#[test]
fn stops_by_timeout_cost_no_attempt_of_a_message_whose_call_waits_for_a_worker() {
    stop_repeatedly(&["--shutdown-timeout", "100ms"], |running| {
        running.signal(Signal::TERM);
        running.finish().assert_status(1);
    });
}

#[test]
fn stops_by_a_second_signal_cost_no_attempt_of_a_message_whose_call_waits_for_a_worker() {
    stop_repeatedly(&[], |running| {
        running.signal(Signal::TERM);
        running.signal(Signal::INT);
        // Whichever of the two came last.
        let status = running.finish().status.code();
        assert!([Some(128 + 2), Some(128 + 15)].contains(&status), "{status:?}");
    });
}

/// Lines of `[loop.naps]`, the message, and what shows that they act.
type KeyInAction = (&'static str, &'static str, fn(&SqliteMailbox) -> bool);

/// Reports whether the first message has died after so many failures, all of them within a few seconds.
fn has_died_soon_after(mailbox: &SqliteMailbox, failures: usize) -> bool {
    let letters = block_on(mailbox.dead_letters(1)).expect("a look");
    letters.first().is_some_and(|letter| {
        let attempts = &letter.message.attempts;
        let took = attempts[failures - 1].began_at.duration_since(attempts[0].began_at).expect("a time");
        attempts.len() == failures && took < Duration::from_secs(5)
    })
}

const KEYS_IN_ACTION: [KeyInAction; 5] = [
    // The usual pauses are 1, 2, 4 and 8 s.
    ("backoff = \"10ms\"", "-1", |naps| has_died_soon_after(naps, 5)),
    // Without this key, the last pause would be 10 s.
    ("backoff = \"10ms\"\nlongest_backoff = \"20ms\"\nmax_deliveries = 12", "-1", |naps| {
        has_died_soon_after(naps, 12)
    }),
    ("backoff = \"10m\"", "-1", |naps| count(naps).delayed == 1),
    ("give_up_on = [\"ValueError\"]", "-1", |naps| has_died_soon_after(naps, 1)),
    ("max_deliveries = 1", "-1", |naps| has_died_soon_after(naps, 1)),
];

#[test]
fn each_key_of_a_loop_acts() {
    for (keys, body, acts) in KEYS_IN_ACTION {
        let service = Service::new(&CONFIG.replace("wait = \"5s\"", keys));
        let naps = service.mailbox("naps");
        ask(&naps, [body.to_owned()].into_iter());
        let running = service.start(&["naps"]);
        let deadline = Instant::now() + PATIENCE;
        while !acts(&naps) {
            assert!(Instant::now() < deadline, "{keys}: {:?}", count(&naps));
            std::thread::yield_now();
        }
        running.signal(Signal::TERM);
        running.finish().assert_status(0);
        service.scene.assert_clean();
    }
}

#[test]
fn the_lease_of_a_killed_service_lasts_as_long_as_its_visibility_timeout() {
    let service = Service::new(&CONFIG.replace("\"1m\"", "\"2s\""));
    let naps = service.mailbox("naps");
    ask(&naps, ["600".to_owned()].into_iter());
    let running = service.start(&["naps"]);
    service.until_begun(1);
    running.signal(Signal::KILL);
    running.finish();
    until_visible(&naps, 1);
    service.scene.assert_clean();
}

#[test]
fn a_wait_out_of_range_is_refused_with_the_range() {
    let service = Service::new(&CONFIG.replace("\"5s\"", "\"21s\""));
    let done = finish(&mut service.command(&["naps", "--create"]));
    assert!(!done.status.success(), "{done:?}");
    assert!(done.stderr.contains("wait") && done.stderr.contains("0s to 20s"), "{done:?}");
    service.scene.assert_clean();
}

#[test]
fn a_misspelt_name_fails_the_start_and_the_error_suggests_the_nearest_name() {
    let service = Service::new(CONFIG);
    let told = service.refused(&["dubles"]);
    assert!(told.contains("there is no loop `dubles`; did you mean `doubles`?"), "{told}");
    for (right, wrong, said) in [
        (
            "command = \"double\"",
            "command = \"duoble\"",
            "pool math have no command duoble; did you mean `double`?",
        ),
        ("pool = \"math\"", "pool = \"meth\"", "there is no pool `meth`; did you mean `math`?"),
        ("wait = \"5s\"", "wiat = \"5s\"", "unknown key `wiat`; did you mean `wait`?"),
        ("shutdown_timeout", "shutdown_tiemout", "did you mean `shutdown_timeout`?"),
    ] {
        let service = Service::new(&CONFIG.replace(right, wrong));
        let told = service.refused(&["--create"]);
        assert!(told.contains(said), "{said:?} is not in {told:?}");
        service.scene.assert_clean();
    }
}

#[test]
fn a_mailbox_that_is_missing_is_refused_unless_it_is_to_be_created() {
    let service = Service::new(CONFIG);
    let file = service.dir.path().join("mail.db");
    let told = service.refused(&["doubles"]);
    assert!(told.contains(&format!("there is no mailbox file {}", file.display())), "{told}");
    assert!(told.contains("--create") && told.contains("`create = true` in [loop.doubles]"), "{told}");
    assert!(!file.exists(), "nothing was made");

    drop(service.mailbox("elsewhere"));
    let told = service.refused(&["doubles"]);
    assert!(told.contains(&format!("there is no mailbox numbers in {}", file.display())), "{told}");

    let create = CONFIG.replace("command = \"double\"", "command = \"double\"\ncreate = true");
    let service = Service::new(&create);
    let running = service.start(&["doubles"]);
    running.signal(Signal::INT);
    running.finish().assert_status(0);
    assert!(service.dir.path().join("mail.db").exists());
}

#[test]
fn a_misspelt_mailbox_is_refused_with_the_nearest_name() {
    let misspelt = Service::new(&CONFIG.replace("#numbers", "#numbres"));
    drop(misspelt.mailbox("numbers"));
    let told = misspelt.refused(&["doubles"]);
    assert!(
        told.contains("there is no mailbox numbres in") && told.contains("did you mean `numbers`?"),
        "{told}"
    );
    assert!(told.contains("--create"), "{told}");
    let running = misspelt.start(&["doubles", "--create"]);
    running.signal(Signal::INT);
    running.finish().assert_status(0);
}

#[test]
fn a_service_without_loops_or_without_a_configuration_says_what_is_missing() {
    let service = Service::new("[pool.math]\nworker = \"worker.py\"\n");
    assert!(service.refused(&[]).contains("there is no loop: add a table [loop.NAME]"));
    let mut nowhere = service.scene.command(env!("CARGO_BIN_EXE_snakepit"));
    nowhere.args(["loop", "run"]).current_dir(service.scene.state_dir());
    let done = finish(&mut nowhere);
    done.assert_status(2);
    assert!(done.stderr.contains("there is no snakepit.toml here"), "{done:?}");
}

/// Returns the answer to a probe.
fn probe(address: &str, path: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("asked");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn probes_are_answered_where_the_configuration_says_and_lines_may_be_json() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    drop(listener);
    let service = Service::new(&CONFIG.replace("[service]", &format!("[service]\nhealth = {port}")));
    let mut running = Running::start(&mut service.command(&["--create", "--json", "--every", "50ms"]));
    let line = running.expect_line("\"runs\"");
    let told: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(
        (told["loop"].as_str(), told["command"].as_str()),
        (Some("doubles"), Some("double")),
        "{line}"
    );
    let answer = probe(&format!("127.0.0.1:{port}"), "/readyz");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("\"naps\""), "{answer}");
    running.signal(Signal::TERM);
    running.finish().assert_status(0);
    service.scene.assert_clean();
}

#[test]
fn a_terminal_gets_a_table_that_is_shown_anew() {
    let service = Service::new(CONFIG);
    ask(&service.mailbox("numbers"), (0..3).map(|number| number.to_string()));
    let mut pty = Pty::bash(&service.scene);
    let (program, state) = (env!("CARGO_BIN_EXE_snakepit"), service.scene.state_dir().display());
    let config = service.dir.path().join("snakepit.toml");
    pty.type_line(&format!(
        "{program} loop run --create --every 100ms --state-dir {state} -c {}",
        config.display()
    ));
    pty.expect("LOOP");
    pty.expect("math.double");
    pty.expect("HANDLED");
    // The previous lines are removed when the table is shown again.
    pty.expect("\x1b[2A");
    until_visible(&service.mailbox("replies"), 3);
    pty.type_keys(CTRL_C);
    pty.expect("ended");
    pty.prompt();
    assert!(pty.leave().success());
    service.scene.assert_clean();
}
