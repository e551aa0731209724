//! `snakepit ledger` lists the runs that the state directory records.

use rustix::process::Signal;
use serde_json::json;

use crate::support::{Running, Scene, TIERS, finish, patient_shell, possible, redacted};

#[test]
fn an_empty_ledger_says_so() {
    let scene = Scene::new();
    let done = finish(&mut scene.verb("ledger"));
    assert_eq!(redacted(&done.assert_status(0).stdout, &scene), "No runs are recorded in DIR.\n");
    assert_eq!(scene.ledger()["runs"], json!([]));
    scene.assert_clean();
}

#[test]
fn a_state_directory_that_is_not_there_is_an_empty_ledger_and_stays_absent() {
    let scene = Scene::new();
    let dir = scene.state_dir().join("absent");
    for verb in ["ledger", "cleanup"] {
        let done =
            finish(scene.command(env!("CARGO_BIN_EXE_snakepit")).arg(verb).arg("--state-dir").arg(&dir));
        done.assert_status(0);
        assert!(!dir.exists(), "{verb} made it");
    }
    scene.assert_clean();
}

#[test]
fn a_live_run_is_listed_with_its_processes() {
    for tier in possible(TIERS) {
        let scene = Scene::new();
        let mut exec =
            Running::start(&mut scene.exec(&["--tier", tier, "--copies", "2"], &patient_shell("")));
        exec.expect_line("ready");
        exec.expect_line("ready");

        let ledger = scene.ledger();
        let run = &ledger["runs"][0];
        assert_eq!(run["life"], "live", "{ledger}");
        assert_eq!(run["host_pid"], exec.pid().as_raw_nonzero().get(), "{ledger}");
        let expected = if tier == "auto" { "shim" } else { tier };
        assert_eq!(run["processes"].as_array().map(Vec::len), Some(2), "{ledger}");
        for (process, worker) in run["processes"].as_array().expect("processes").iter().zip(["w1", "w2"]) {
            assert_eq!(
                (&process["worker"], &process["tier"]),
                (&worker.into(), &expected.into()),
                "{ledger}"
            );
            assert_eq!((&process["alive"], &process["at_gate"]), (&true.into(), &false.into()), "{ledger}");
            assert!(process["pid"].as_i64().is_some() && process["pgid"].as_i64().is_some(), "{ledger}");
            assert!(process["spawned_at"].as_str().is_some_and(|at| at.ends_with('Z')), "{ledger}");
        }

        let text = finish(&mut scene.verb("ledger"));
        let text = redacted(&text.assert_status(0).stdout, &scene);
        let header = "RUN HOST LIFE WORKER PID PGID TIER SPAWNED AT ALIVE\n";
        let row = |worker: &str| format!("RUN N live {worker} N N {expected} DATE ");
        assert!(text.starts_with(header) && text.contains(&row("w1")) && text.contains(&row("w2")), "{text}");

        exec.signal(Signal::TERM);
        exec.finish().assert_status(143);
        scene.assert_clean();
    }
}

#[test]
fn the_state_directory_can_come_from_the_environment() {
    let scene = Scene::new();
    let mut ledger = scene.command(env!("CARGO_BIN_EXE_snakepit"));
    let done = finish(ledger.arg("ledger").env("SNAKEPIT_STATE_DIR", scene.state_dir()));
    assert_eq!(redacted(&done.assert_status(0).stdout, &scene), "No runs are recorded in DIR.\n");
    scene.assert_clean();
}

#[test]
fn an_unread_pipe_does_not_change_the_status() {
    let scene = Scene::new();
    let script =
        "for verb in ledger cleanup doctor; do $0 $verb --state-dir $1 | :; echo ${PIPESTATUS[0]}; done";
    let done = finish(
        scene.command("bash").args(["-c", script, env!("CARGO_BIN_EXE_snakepit")]).arg(scene.state_dir()),
    );
    assert_eq!((done.assert_status(0).stdout.as_str(), done.stderr.as_str()), ("0\n0\n0\n", ""));
    scene.assert_clean();
}
