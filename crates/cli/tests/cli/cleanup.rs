//! `snakepit cleanup` ends what dead runs have left and reports it.

use std::time::Instant;

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use crate::support::{
    MOMENT, PATIENCE, Running, Scene, ends_until, finish, patient_shell, pid, redacted, send, state,
};

/// Kills host, keeper and shims of the only run at once, so that no process is left to clean up.
fn kill_all_guards(scene: &Scene) {
    let ledger = scene.ledger();
    let run = &ledger["runs"][0];
    let number = |value: &Value| pid(&value.as_i64().unwrap_or_else(|| panic!("{ledger}")).to_string());
    let mut guards = vec![number(&run["host_pid"]), number(&run["keeper_pid"])];
    for guard in &guards {
        stop(*guard);
    }
    // The keeper may have spare shims that no record names yet.
    let mut next = 1;
    while let Some(parent) = guards.get(next) {
        let kin = children(*parent).into_iter().filter(|child| name(*child).starts_with("snakepit-"));
        for guard in kin.collect::<Vec<_>>() {
            stop(guard);
            guards.push(guard);
        }
        next += 1;
    }
    // The youngest shim is killed first. If a keeper died before its stopped shims, the kernel would continue them, and
    // they would clean up.
    for guard in guards.iter().rev() {
        send(*guard, Signal::KILL);
    }
    for guard in guards {
        assert!(ends_until(guard, Instant::now() + PATIENCE), "a guard lives on");
    }
}

/// Stops a process and waits until it has stopped. A parent in vfork (D) already stands still.
fn stop(pid: Pid) {
    send(pid, Signal::STOP);
    let until = Instant::now() + PATIENCE;
    // There is no panic here, because it would leave the others stopped.
    while !matches!(state(pid), Some('T' | 'D' | 'Z') | None) && Instant::now() < until {
        std::thread::yield_now();
    }
}

fn children(parent: Pid) -> Vec<Pid> {
    let parent = parent.as_raw_nonzero();
    let children =
        std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    children.split_whitespace().map(pid).collect()
}

fn name(pid: Pid) -> String {
    std::fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero())).unwrap_or_default()
}

#[test]
fn cleanup_without_dead_runs_says_so_and_leaves_live_ones_alone() {
    let scene = Scene::new();
    let mut exec = Running::start(&mut scene.exec(&[], &patient_shell("trap 'echo usr' USR1")));
    exec.expect_line("ready");
    let done = finish(&mut scene.verb("cleanup"));
    let text = redacted(&done.assert_status(0).stdout, &scene);
    assert_eq!(text, "Nothing to clean: no dead run is recorded in DIR.\n");
    exec.signal(Signal::USR1);
    exec.expect_line("usr");
    exec.signal(Signal::TERM);
    exec.finish().assert_status(143);
    scene.assert_clean();
}

#[test]
fn cleanup_kills_what_a_dead_run_left_and_names_it() {
    let scene = Scene::new();
    let script = "setsid bash -c 'trap \"\" TERM; echo $$; exec sleep 1000' & wait";
    let mut exec = Running::start(&mut scene.exec(&["--tier", "shim"], &["bash", "-c", script]));
    let escaped = pid(&exec.expect_line(""));
    kill_all_guards(&scene);
    drop(exec);
    assert!(scene.alive().iter().any(|(pid, _)| *pid == escaped), "no process is left to be found");

    let ledger = scene.ledger();
    assert_eq!(ledger["runs"][0]["life"], "dead", "{ledger}");
    let listed = finish(&mut scene.verb("ledger"));
    assert!(listed.assert_status(0).stdout.contains("snakepit cleanup"), "{}", listed.stdout);

    let done = finish(scene.verb("cleanup").arg("--json"));
    let report: Value = serde_json::from_str(&done.assert_status(0).stdout).expect("JSON");
    assert_eq!((&report["clean"], &report["runs"][0]["removed"]), (&true.into(), &true.into()), "{report}");
    let killed = report["runs"][0]["killed"].as_array().expect("killed");
    let found = killed.iter().find(|killed| killed["pid"] == escaped.as_raw_nonzero().get());
    // The shell prints its pid a moment before it becomes `sleep`.
    let is_named =
        |found: &Value| found["command"].as_str().is_some_and(|command| command.contains("sleep 1000"));
    assert!(found.is_some_and(is_named), "{report}");
    scene.assert_all_end_within(MOMENT);
    assert_eq!(scene.ledger()["runs"], json!([]));
    scene.assert_clean();
}

#[test]
fn cleanup_tells_a_person_what_it_killed() {
    let scene = Scene::new();
    let script = "setsid bash -c 'echo $$; exec sleep 1000' & wait";
    let mut exec = Running::start(&mut scene.exec(&["--tier", "shim"], &["bash", "-c", script]));
    exec.expect_line("");
    kill_all_guards(&scene);
    drop(exec);
    let done = finish(&mut scene.verb("cleanup"));
    let text = redacted(&done.assert_status(0).stdout, &scene);
    assert!(text.contains("RUN: killed N process") && text.contains("its record is removed"), "{text}");
    assert!(text.contains("killed pid N") && text.contains("sleep N"), "{text}");
    scene.assert_all_end_within(MOMENT);
    scene.assert_clean();
}

#[test]
fn a_record_that_cannot_be_read_is_reported_and_not_taken_for_an_empty_one() {
    let scene = Scene::new();
    let mut exec = Running::start(&mut scene.exec(&["--tier", "shim"], &patient_shell("")));
    exec.expect_line("ready");
    kill_all_guards(&scene);
    drop(exec);
    for file in files_below(scene.state_dir()) {
        let mut bytes = std::fs::read(&file).expect("a record");
        for byte in &mut bytes {
            *byte ^= 0x55;
        }
        std::fs::write(&file, bytes).expect("a damaged record");
    }
    let listed = finish(&mut scene.verb("ledger"));
    assert!(!listed.assert_status(0).stdout.contains("No runs are recorded"), "{}", listed.stdout);
    let ledger = scene.ledger();
    let run = &ledger["runs"][0];
    assert!(
        run["life"] == "unreadable" || run["trouble"].as_array().is_some_and(|trouble| !trouble.is_empty()),
        "{ledger}"
    );
    // Whatever `cleanup` decides, it says so and leaves the bystander alone.
    let done = finish(&mut scene.verb("cleanup"));
    assert!(matches!(done.status.code(), Some(0 | 1)), "{done:?}");
    assert!(!done.stdout.contains("Nothing to clean"), "{}", done.stdout);
    let mut scene = scene;
    scene.assert_bystander_is_well();
}

fn files_below(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).expect("a directory").flatten() {
        let kind = entry.file_type().expect("its kind");
        if kind.is_dir() {
            found.extend(files_below(&entry.path()));
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
    found
}
