//! The three verbs that look after the state directory and the machine.

mod support;

use std::time::Instant;

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use support::{
    MOMENT, PATIENCE, Running, Scene, TIERS, ends_until, finish, patient_shell, pid, possible, send, state,
};

/// Replaces what differs from run to run: ids, numbers of processes, times, and the directory.
fn redacted(text: &str, scene: &Scene) -> String {
    let text = text.replace(&scene.state_dir().display().to_string(), "DIR");
    let words = text.split_inclusive([' ', '\n', ':', ',']).map(|word| {
        let bare = word.trim_end_matches([' ', '\n', ':', ',']);
        let rest = &word[bare.len()..];
        let is_id = bare.len() == 32 && bare.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_number = !bare.is_empty() && bare.bytes().all(|byte| byte.is_ascii_digit());
        let is_date = bare.len() == 10 && bare.bytes().filter(|byte| *byte == b'-').count() == 2;
        match () {
            () if is_id => format!("RUN{rest}"),
            () if is_date => format!("DATE{rest}"),
            () if is_number => format!("N{rest}"),
            () => word.to_owned(),
        }
    });
    // Columns are as wide as their widest cell, which differs as well.
    let joined: String = words.collect();
    joined.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n").collect()
}

/// Kills host, keeper and shims of the only run, all at once, so that nobody is left to clean up.
fn kill_all_guards(scene: &Scene) {
    let ledger = scene.ledger();
    let run = &ledger["runs"][0];
    let number = |value: &Value| pid(&value.as_i64().unwrap_or_else(|| panic!("{ledger}")).to_string());
    let mut guards = vec![number(&run["host_pid"]), number(&run["keeper_pid"])];
    for guard in &guards {
        stop(*guard);
    }
    // The keeper may have shims in reserve, which no record names yet.
    let mut next = 1;
    while let Some(parent) = guards.get(next) {
        let kin = children(*parent).into_iter().filter(|child| name(*child).starts_with("snakepit-"));
        for guard in kin.collect::<Vec<_>>() {
            stop(guard);
            guards.push(guard);
        }
        next += 1;
    }
    // The youngest first: a stopped shim whose keeper dies would be continued by the kernel, and do its work.
    for guard in guards.iter().rev() {
        send(*guard, Signal::KILL);
    }
    for guard in guards {
        assert!(ends_until(guard, Instant::now() + PATIENCE), "a guard lives on");
    }
}

/// Stops a process, and waits until it stands still. A parent in vfork (D) does so already.
fn stop(pid: Pid) {
    send(pid, Signal::STOP);
    let until = Instant::now() + PATIENCE;
    // No panic here: it would leave the others standing.
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
    assert!(scene.alive().iter().any(|(pid, _)| *pid == escaped), "nobody is left to be found");

    let ledger = scene.ledger();
    assert_eq!(ledger["runs"][0]["life"], "dead", "{ledger}");
    let listed = finish(&mut scene.verb("ledger"));
    assert!(listed.assert_status(0).stdout.contains("snakepit cleanup"), "{}", listed.stdout);

    let done = finish(scene.verb("cleanup").arg("--json"));
    let report: Value = serde_json::from_str(&done.assert_status(0).stdout).expect("JSON");
    assert_eq!((&report["clean"], &report["runs"][0]["removed"]), (&true.into(), &true.into()), "{report}");
    let killed = report["runs"][0]["killed"].as_array().expect("killed");
    let found = killed.iter().find(|killed| killed["pid"] == escaped.as_raw_nonzero().get());
    // It says its number a moment before it becomes this.
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
    // Whatever it decides, it says so and does not touch the innocent.
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

#[test]
fn doctor_finds_the_default_tier_and_explains_the_rest() {
    let scene = Scene::new();
    let done = finish(&mut scene.verb("doctor"));
    let text = &done.assert_status(0).stdout;
    for section in ["Tiers", "System", "Limits", "State directory", "Python"] {
        assert!(text.lines().any(|line| line == section), "{section} is missing:\n{text}");
    }
    for name in [
        "namespace",
        "shim",
        "group",
        "auto",
        "cgroup.kill",
        "pidfs",
        "/proc",
        "PID namespace",
        "time namespace",
        "user namespaces",
        "cgroup v2",
        "seccomp",
        "no_new_privs",
        "open files",
        "processes",
        "file size",
        "pid_max",
        "memfd_noexec",
        "path",
        "usable",
        "python3",
    ] {
        assert!(
            text.lines().any(|line| line.starts_with("  ") && line.contains(name)),
            "{name} is missing:\n{text}"
        );
    }
    assert!(text.contains(&scene.state_dir().display().to_string()), "{text}");
    assert!(text.ends_with("All is well: `snakepit exec` runs in the shim tier here.\n"), "{text}");
    scene.assert_clean();
}

#[test]
fn doctor_says_the_same_as_json() {
    let scene = Scene::new();
    let done = finish(scene.verb("doctor").arg("--json"));
    let report: Value = serde_json::from_str(&done.assert_status(0).stdout).expect("JSON");
    assert_eq!((&report["healthy"], &report["default_tier"]), (&true.into(), &"shim".into()), "{report}");
    let shim =
        report["tiers"].as_array().expect("tiers").iter().find(|tier| tier["name"] == "shim").expect("shim");
    assert_eq!(shim["verdict"], "ok", "{report}");
    scene.assert_clean();
}

#[test]
fn doctor_says_why_a_state_directory_cannot_be_used() {
    let scene = Scene::new();
    let file = scene.state_dir().join("file");
    std::fs::write(&file, "").expect("a file");
    let link = scene.state_dir().join("link");
    std::os::unix::fs::symlink(scene.state_dir(), &link).expect("a link");
    for (dir, why) in [
        (file.as_path(), "not a directory"),
        (link.as_path(), "symbolic link"),
        ("/dev/null/x".as_ref(), "Not a directory"),
    ] {
        let done =
            finish(scene.command(env!("CARGO_BIN_EXE_snakepit")).arg("doctor").arg("--state-dir").arg(dir));
        assert!(done.assert_status(1).stdout.contains(why), "{why}:\n{}", done.stdout);
        assert!(done.stdout.contains("does not work here"), "{}", done.stdout);
    }
    scene.assert_clean();
}

#[test]
fn doctor_warns_of_a_script_in_pythons_place() {
    let scene = Scene::new();
    let shims = tempfile::tempdir().expect("a directory");
    let shim = shims.path().join("python3");
    std::fs::write(&shim, "#!/bin/sh\nPATH=${PATH#*:} exec python3 \"$@\"\n").expect("a shim");
    std::fs::set_permissions(&shim, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("its mode");
    let path = format!("{}:{}", shims.path().display(), std::env::var("PATH").expect("PATH"));
    let done = finish(scene.verb("doctor").env("PATH", path));
    let warning = format!("{} is a script", shim.display());
    assert!(done.assert_status(0).stdout.contains(&warning), "{}", done.stdout);
    scene.assert_clean();
}

#[test]
fn doctor_works_without_python() {
    let scene = Scene::new();
    let done = finish(scene.verb("doctor").env("PATH", "/nonexistent"));
    assert!(done.assert_status(0).stdout.contains("not in PATH"), "{}", done.stdout);
    scene.assert_clean();
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
fn a_pipe_that_nobody_reads_changes_no_status() {
    let scene = Scene::new();
    let script =
        "for verb in ledger cleanup doctor; do $0 $verb --state-dir $1 | :; echo ${PIPESTATUS[0]}; done";
    let done = finish(
        scene.command("bash").args(["-c", script, env!("CARGO_BIN_EXE_snakepit")]).arg(scene.state_dir()),
    );
    assert_eq!((done.assert_status(0).stdout.as_str(), done.stderr.as_str()), ("0\n0\n0\n", ""));
    scene.assert_clean();
}
