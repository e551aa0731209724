//! Progress bars of workers under `-v` appear as they are drawn.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;

use crate::support::pty::Pty;
use crate::support::{Running, Scene, finish, worker};

/// Creates the gate at which the worker waits between two steps.
fn gate(scene: &Scene) -> PathBuf {
    let path = scene.state_dir().join("gate");
    finish(scene.command("mkfifo").arg(&path)).assert_status(0);
    path
}

/// Opens the gate. Returns once the worker has opened it, too.
fn open(gate: &PathBuf) -> File {
    OpenOptions::new().write(true).open(gate).expect("the gate")
}

fn words(scene: &Scene, gate: &std::path::Path) -> [String; 8] {
    [
        env!("CARGO_BIN_EXE_snakepit").into(),
        "call".into(),
        "--state-dir".into(),
        scene.state_dir().display().to_string(),
        format!("--worker={}", worker("worker.py").display()),
        "-v".into(),
        "train".into(),
        format!("file={}", gate.display()),
    ]
}

#[test]
fn on_a_terminal_a_progress_bar_is_redrawn_and_its_last_state_stays() {
    let scene = Scene::new();
    let gate = gate(&scene);
    let mut pty = Pty::bash(&scene);
    pty.type_line(&words(&scene, &gate).join(" "));
    let mut opened = open(&gate);
    pty.expect("[worker-1] epoch:   0%|  | 0/2");
    pty.expect("[worker-1] batch:   0%|");
    opened.write_all(b"\n").expect("a step");
    pty.expect("\r\u{1b}[2K[worker-1] epoch:  50%|█ | 1/2");
    // The bar below is drawn after it. Before that, the next state would come in the same read as this one.
    pty.expect("[worker-1] batch:  10%|");
    opened.write_all(b"\n").expect("a step");
    pty.expect("[worker-1] epoch: 100%|██| 2/2");
    opened.write_all(b"\n").expect("a step");
    // The result of the call may have come first and replaced the bar.
    pty.expect("[worker-1] epoch: 100%|██| 2/2\r\n");
    pty.prompt();
    pty.expect_status(0);
    pty.leave();
    scene.assert_clean();
}

#[test]
fn outside_a_terminal_a_progress_bar_is_printed_as_plain_lines() {
    let scene = Scene::new();
    let gate = gate(&scene);
    let mut both = scene.command("sh");
    both.args(["-c", "exec \"$@\" 2>&1", "sh"]).args(words(&scene, &gate));
    let mut running = Running::start(&mut both);
    let mut opened = open(&gate);
    let first = running.expect_line("epoch");
    assert_eq!(first, "[worker-1] epoch:   0%|  | 0/2", "while the worker waits");
    opened.write_all(b"\n\n\n").expect("all steps");
    let done = running.finish();
    done.assert_status(0);
    for line in ["[worker-1] epoch: 100%|██| 2/2\n", "[worker-1] trained\n"] {
        assert!(done.stdout.contains(line), "{line:?} is not in {}", done.stdout);
    }
    assert!(!done.stdout.contains("\\u{") && !done.stdout.contains(['\r', '\u{1b}']), "{:?}", done.stdout);
    scene.assert_clean();
}
