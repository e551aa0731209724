//! When `snakepit call` ends early, it cancels the call, ends the worker and the worker's processes, and exits with a
//! status that says why.
#![expect(clippy::disallowed_methods, reason = "the tests start real processes, as a user would")]

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;

use crate::support::pty::{CTRL_C, Pty};
use crate::support::{self, PATIENCE, Running, Scene, call, finish, worker};

/// Waits until a worker has written its line.
fn wait_for(file: &Path) -> String {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Ok(text) = std::fs::read_to_string(file)
            && text.ends_with('\n')
        {
            return text;
        }
        assert!(Instant::now() < until, "{} was not written", file.display());
        std::thread::yield_now();
    }
}

fn interrupted_by(signal: Signal, status: i32) {
    let scene = Scene::new();
    let file = scene.state_dir().join("ready");
    let running =
        Running::start(call(&scene).args(["wait_with_family", &format!("file={}", file.display())]));
    wait_for(&file);
    running.signal(signal);
    running.finish().assert_status(status);
    scene.assert_clean();
}

#[test]
fn an_interrupt_cancels_the_call() {
    interrupted_by(Signal::INT, 130);
}

#[test]
fn a_termination_cancels_the_call() {
    interrupted_by(Signal::TERM, 143);
}

#[test]
fn a_hang_up_cancels_the_call() {
    interrupted_by(Signal::HUP, 129);
}

#[test]
fn a_second_interrupt_kills_what_does_not_give_up() {
    let scene = Scene::new();
    let file = scene.state_dir().join("ready");
    let running = Running::start(call(&scene).args(["stubborn", &format!("file={}", file.display())]));
    wait_for(&file);
    running.signal(Signal::INT);
    running.signal(Signal::TERM);
    let done = running.finish();
    assert!(matches!(done.status.code(), Some(130 | 143)), "{done:?}");
    scene.assert_clean();
}

#[test]
fn a_call_that_ignores_its_cancel_is_ended_stage_by_stage() {
    let scene = Scene::new();
    let dir = scene.state_dir().join("project");
    std::fs::create_dir(&dir).expect("a directory");
    let config = format!(
        "[pool.a]\nworker = \"{}\"\ncancel_grace = {{ ask = \"50ms\", raise = \"50ms\", terminate = \"50ms\" }}\n",
        worker("worker.py").display()
    );
    std::fs::write(dir.join("snakepit.toml"), config).expect("a configuration");
    let file = dir.join("ready");
    let mut command = scene.verb("call");
    command.current_dir(&dir).args(["stubborn", &format!("file={}", file.display())]);
    let running = Running::start(&mut command);
    wait_for(&file);
    running.signal(Signal::INT);
    running.finish().assert_status(130);
    scene.assert_clean();
}

/// Returns `snakepit call now` for a worker that only KILL ends, with these keys in `[custody]`.
fn deaf_call(scene: &Scene, keys: &str) -> Command {
    let dir = scene.state_dir().join("project");
    std::fs::create_dir_all(&dir).expect("a directory");
    let config = format!("[pool.a]\nworker = \"{}\"\n\n[custody]\n{keys}\n", worker("deaf.py").display());
    std::fs::write(dir.join("snakepit.toml"), config).expect("a configuration");
    let mut command = scene.verb("call");
    command.current_dir(&dir).arg("now");
    command
}

#[test]
fn a_worker_that_ignores_term_delays_the_exit_by_the_configured_time() {
    for (keys, takes) in [
        ("cleanup_on_stop_timeout_ms = 400", Some(0.4)),
        ("cleanup_on_stop_timeout_ms = 1500", Some(1.5)),
        ("cleanup_on_stop = false", None),
    ] {
        let scene = Scene::new();
        let done = finish(&mut deaf_call(&scene, keys));
        let ended = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs_f64();
        done.assert_status(0);
        let answered: f64 = done.stdout.trim().parse().expect("a time");
        let took = ended - answered;
        assert!(took >= takes.unwrap_or_default(), "{keys}: {took} s");
        assert!(took < takes.unwrap_or_default() + 1.0, "{keys}: {took} s");
        scene.assert_clean();
    }
}

#[test]
fn an_interrupt_during_the_grace_of_a_worker_that_ignores_term_kills_it_at_once() {
    let scene = Scene::new();
    let file = scene.state_dir().join("told");
    let mut command = deaf_call(&scene, "cleanup_on_stop_timeout_ms = 60000");
    let running = Running::start(command.arg(format!("file={}", file.display())));
    wait_for(&file);
    let began = Instant::now();
    running.signal(Signal::INT);
    running.finish().assert_status(0);
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    scene.assert_clean();
}

#[test]
fn an_interrupt_while_the_worker_starts_leaves_nothing() {
    let scene = Scene::new();
    let running = Running::start(scene.verb("call").arg("-w").arg(worker("sleepy.py")).arg("add"));
    scene.wait_until_asleep("python3");
    running.signal(Signal::INT);
    running.finish().assert_status(130);
    scene.assert_clean();
}

#[test]
fn a_timeout_has_the_status_of_timeouts_and_shows_where_the_call_was() {
    let scene = Scene::new();
    let done = finish(call(&scene).args(["--timeout", "3s", "--json", "wait", "seconds:=1000"]));
    done.assert_status(124);
    assert!(done.stderr.contains("wait did not answer within 3s"), "{}", done.stderr);
    assert!(done.stderr.contains("worker.py\", line "), "no stack: {}", done.stderr);
    assert_eq!(done.json()["error"]["kind"], "timeout");
    scene.assert_clean();
}

#[test]
fn the_start_of_the_worker_counts_for_the_timeout() {
    let scene = Scene::new();
    let done =
        finish(scene.verb("call").args(["--timeout", "500ms", "-w"]).arg(worker("sleepy.py")).arg("add"));
    done.assert_status(124);
    assert!(done.stderr.contains("add was not called: "), "{}", done.stderr);
    assert!(done.stderr.contains("was not ready within 500ms"), "{}", done.stderr);
    assert!(done.stderr.contains("--timeout includes the start of the worker"), "{}", done.stderr);
    scene.assert_clean();
}

#[test]
fn a_program_that_prints_no_ready_line_in_time_shows_what_it_printed() {
    let scene = Scene::new();
    let program = scene.state_dir().join("server.sh");
    std::fs::write(&program, "#!/bin/sh\necho Uvicorn running on port 8000\nexec sleep 1000\n")
        .expect("a program");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("executable");
    let call = ["--timeout", "500ms", "--adapter", "http", "-w"];
    let done = finish(scene.verb("call").args(call).arg(&program).arg("add"));
    done.assert_status(124);
    for said in ["no ready line came", "Uvicorn running on port 8000", "--timeout includes"] {
        assert!(done.stderr.contains(said), "{}", done.stderr);
    }
    scene.assert_clean();
}

#[test]
fn a_worker_that_is_not_ready_in_its_own_time_shows_its_last_lines() {
    let scene = Scene::new();
    let dir = scene.state_dir().join("project");
    std::fs::create_dir(&dir).expect("a directory");
    let config = format!(
        "[pool.a]\nworker = \"{}\"\nworker_start_timeout = \"500ms\"\n",
        worker("sleepy.py").display()
    );
    std::fs::write(dir.join("snakepit.toml"), config).expect("a configuration");
    let done = finish(scene.verb("call").current_dir(&dir).arg("add"));
    done.assert_status(124);
    assert!(done.stderr.contains("not ready within 500ms"), "{}", done.stderr);
    scene.assert_clean();
}

#[test]
fn a_reader_that_has_enough_ends_the_stream() {
    let scene = Scene::new();
    let script = format!(
        "{} call --state-dir {} -w {} --stream count n:=1000000000 | head -1; echo status=${{PIPESTATUS[0]}}",
        env!("CARGO_BIN_EXE_snakepit"),
        scene.state_dir().display(),
        worker("worker.py").display(),
    );
    let done = finish(scene.command("bash").args(["-c", &script]));
    assert_eq!(done.assert_status(0).stdout, "0\nstatus=0\n");
    assert_eq!(done.stderr, "");
    scene.assert_clean();
}

#[test]
fn a_reader_that_has_gone_ends_a_stream_that_is_silent() {
    let scene = Scene::new();
    let mut child = call(&scene)
        .args(["--stream", "one_then_wait"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("snakepit");
    let mut stdout = child.stdout.take().expect("stdout");
    let mut line = [0; 6];
    stdout.read_exact(&mut line).expect("the first value");
    assert_eq!(&line, b"first\n");
    drop(stdout);
    let pid = rustix::process::Pid::from_child(&child);
    assert!(support::ends_until(pid, Instant::now() + Duration::from_secs(10)), "it goes on");
    assert_eq!(child.wait().expect("its status").code(), Some(0));
    scene.assert_clean();
}

#[test]
fn a_reader_that_pauses_does_not_hold_up_a_signal() {
    let scene = Scene::new();
    let mut child = call(&scene)
        .args(["--stream", "count", "n:=1000000000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("snakepit");
    let mut stdout = child.stdout.take().expect("stdout");
    stdout.read_exact(&mut [0; 2]).expect("the first value");
    let pid = rustix::process::Pid::from_child(&child);
    support::send(pid, Signal::INT);
    assert!(support::ends_until(pid, Instant::now() + PATIENCE), "it waits for its reader");
    assert_eq!(child.wait().expect("its status").code(), Some(130));
    scene.assert_clean();
}

#[test]
fn on_a_terminal_progress_is_shown_and_ctrl_c_cancels() {
    let scene = Scene::new();
    let mut pty = Pty::bash(&scene);
    pty.type_line(&format!(
        "{} call --state-dir {} -w {} wait seconds:=1000",
        env!("CARGO_BIN_EXE_snakepit"),
        scene.state_dir().display(),
        worker("worker.py").display(),
    ));
    pty.expect(" 25 %  a quarter");
    pty.type_keys(CTRL_C);
    pty.prompt();
    pty.expect_status(130);
    pty.leave();
    scene.assert_clean();
}

#[test]
fn off_a_terminal_progress_is_not_shown() {
    let scene = Scene::new();
    let done = finish(call(&scene).args(["wait", "seconds:=0"]));
    assert_eq!(done.assert_status(0).stderr, "");
    scene.assert_clean();
}
