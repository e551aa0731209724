//! When `snakepit exec` returns, no process that its command started is alive, wherever it runs.

use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{PidfdFlags, Signal, pidfd_open};

use crate::support::{
    self, MOMENT, PATIENCE, Running, Scene, TIERS, finish, has_ended_until, patient_shell, possible,
};

/// Starts a daemon in the usual way: forked twice, in its own session, with its descriptors closed.
const DAEMON: &str = "(setsid setsid sleep 1000 <&- >&- 2>&- &) ; ";

/// Options of `unshare` that make a command PID 1, as in a container.
const CONTAINER: [&str; 3] = ["--pid", "--fork", "--mount-proc"];

/// The tiers that also hold processes that leave the group.
const HOLDING: [&str; 3] = ["auto", "namespace", "shim"];

#[test]
fn processes_left_by_the_command_are_gone_when_exec_returns() {
    for tier in possible(HOLDING) {
        let scene = Scene::new();
        let script = format!("{DAEMON} sleep 1000 & exit 3");
        finish(&mut scene.exec(&["--tier", tier], &["bash", "-c", &script])).assert_status(3);
        scene.assert_clean();
    }
}

#[test]
fn in_the_group_tier_the_group_is_gone_when_exec_returns() {
    let scene = Scene::new();
    finish(&mut scene.exec(&["--tier", "group"], &["bash", "-c", "sleep 1000 & sleep 1000 & exit 3"]))
        .assert_status(3);
    scene.assert_clean();
}

#[test]
fn the_timeout_program_ends_exec_and_all_its_descendants() {
    for tier in possible(HOLDING) {
        let scene = Scene::new();
        let script = format!("timeout 0.3 $S --tier {tier} -- bash -c '{DAEMON} sleep 1000'; echo $?");
        let done = finish(scene.command("bash").args(["-c", &script]));
        assert_eq!(done.assert_status(0).stdout, "124\n");
        scene.assert_clean();
    }
}

#[test]
fn a_closed_pipe_ends_the_command_with_sigpipe() {
    for tier in possible(TIERS) {
        let scene = Scene::new();
        let script = format!("$S --tier {tier} -- yes | head -n 2; echo ${{PIPESTATUS[0]}}");
        let done = finish(scene.command("bash").args(["-c", &script]));
        // 141: the command ended by SIGPIPE. It would not if it had inherited a Rust program's ignored SIGPIPE.
        assert_eq!(done.assert_status(0).stdout, "y\ny\n141\n");
        scene.assert_clean();
    }
}

#[test]
fn closed_output_changes_nothing() {
    for tier in possible(TIERS) {
        for closed in [">&-", "2>&-", ">&- 2>&-", "> /dev/full 2>&1"] {
            let scene = Scene::new();
            let script = format!("$S --tier {tier} --json -- sh -c 'exit 5' {closed}");
            finish(scene.command("bash").args(["-c", &script])).assert_status(5);
            scene.assert_clean();
        }
    }
}

#[test]
fn a_failure_of_exec_keeps_its_status_when_its_output_is_unreadable() {
    let scene = Scene::new();
    for closed in ["2>&-", "2> /dev/full", "2> >(:)"] {
        let script = format!("$S --json -- /nonexistent/program {closed}");
        finish(scene.command("bash").args(["-c", &script])).assert_status(127);
    }
    scene.assert_clean();
}

#[test]
fn exec_runs_in_the_background_of_a_script() {
    for tier in possible(HOLDING) {
        let scene = Scene::new();
        let script = format!("$S --tier {tier} -- bash -c '{DAEMON} exit 4' & wait $!");
        finish(scene.command("bash").args(["-c", &script])).assert_status(4);
        scene.assert_clean();
    }
}

#[test]
fn exec_outlives_a_script_that_does_not_wait_for_it() {
    let scene = Scene::new();
    let script = "mkfifo $0/go; $S -- sh -c 'echo begun; read word < $0/go; echo $word' $0 & disown";
    let mut bash = scene.command("bash");
    let fifo = scene.state_dir().join("go");
    let mut running = Running::start(bash.args(["-c", script]).arg(scene.state_dir()));
    running.expect_line("begun");
    std::fs::write(&fifo, "over\n").expect("the fifo");
    running.expect_line("over");
    running.finish().assert_status(0);
    scene.assert_all_end_within(MOMENT);
    scene.assert_clean();
}

#[test]
fn as_pid_1_of_a_container_it_runs_and_nothing_is_left() {
    if !support::can_unshare(&CONTAINER) {
        return;
    }
    for tier in possible(HOLDING) {
        let scene = Scene::new();
        let script = format!(
            "exec unshare --pid --fork --mount-proc $S --tier {tier} -- bash -c '{DAEMON} echo $PPID; exit 9'"
        );
        finish(scene.command("bash").args(["-c", &script])).assert_status(9);
        scene.assert_clean();
    }
}

#[test]
fn as_pid_1_of_a_container_it_answers_signals() {
    if !support::can_unshare(&CONTAINER) {
        return;
    }
    for tier in possible(TIERS) {
        let scene = Scene::new();
        let mut bash = scene.command("bash");
        let script = format!("exec unshare --pid --fork --mount-proc $S --tier {tier} --grace 10s -- \"$@\"");
        bash.args(["-c", &script, "-"]).args(patient_shell("trap 'echo int' INT; trap 'exit 8' TERM"));
        let mut running = Running::start(&mut bash);
        running.expect_line("ready");
        let inside = scene.alive().into_iter().find(|(_, name)| name == "snakepit").expect("exec").0;
        support::send(inside, Signal::INT);
        running.expect_line("int");
        support::send(inside, Signal::TERM);
        running.finish().assert_status(8);
        scene.assert_clean();
    }
}

#[test]
fn as_pid_1_of_a_container_exec_reaps_orphans() {
    if !support::can_unshare(&CONTAINER) {
        return;
    }
    let scene = Scene::new();
    let mut bash = scene.command("bash");
    let script = "exec unshare --pid --fork --mount-proc $S -- \"$@\"";
    bash.args(["-c", script, "-"]).args(patient_shell(""));
    let mut running = Running::start(&mut bash);
    running.expect_line("ready");
    let inside = scene.alive().into_iter().find(|(_, name)| name == "snakepit").expect("exec").0;
    // A foreign process enters the container. Its child is orphaned and becomes a child of PID 1.
    let target = inside.as_raw_nonzero().to_string();
    let script = "(sleep 0.1; exit 0) & echo $!";
    let done = finish(
        scene.command("nsenter").args(["--target", &target, "--pid", "--mount", "bash", "-c", script]),
    );
    done.assert_status(0);
    let children = format!("/proc/{target}/task/{target}/children");
    let until = Instant::now() + PATIENCE;
    // Only the keeper stays.
    while std::fs::read_to_string(&children).expect("children").split_whitespace().count() > 1 {
        assert!(Instant::now() < until, "an orphan was not buried");
        std::thread::yield_now();
    }
    support::send(inside, Signal::TERM);
    running.finish().assert_status(143);
    scene.assert_clean();
}

#[test]
fn killing_exec_kills_everything_within_moments() {
    for tier in possible(HOLDING) {
        let scene = Scene::new();
        let script = format!(
            "trap '' TERM HUP INT; {DAEMON} setsid bash -c 'trap \"\" TERM; echo two; sleep 1000' & echo one; wait"
        );
        let mut exec =
            Running::start(scene.exec(&["--tier", tier], &["bash", "-c", &script]).stdin(Stdio::null()));
        exec.expect_line("");
        exec.expect_line("");
        let held: Vec<_> = scene
            .alive()
            .into_iter()
            .filter_map(|(pid, name)| Some((pidfd_open(pid, PidfdFlags::empty()).ok()?, name)))
            .collect();
        assert!(held.len() >= 3, "{held:?}");
        exec.signal(Signal::KILL);
        let killed_at = Instant::now();
        for (pidfd, name) in &held {
            assert!(has_ended_until(pidfd, killed_at + MOMENT), "{name} outlived exec");
        }
        scene.assert_all_end_within(MOMENT);
        drop(exec);
        finish(&mut scene.exec(&[], &["true"])).assert_status(0);
        scene.assert_clean();
    }
}

#[test]
fn killing_the_whole_group_of_exec_kills_everything() {
    use std::os::unix::process::CommandExt;
    for tier in possible(TIERS) {
        let scene = Scene::new();
        let mut command = scene.exec(&["--tier", tier], &patient_shell("trap '' TERM HUP"));
        let mut exec = Running::start(command.process_group(0));
        exec.expect_line("ready");
        let group = exec.pid().as_raw_nonzero().to_string();
        finish(scene.command("bash").args(["-c", &format!("kill -KILL -- -{group}")])).assert_status(0);
        scene.assert_all_end_within(MOMENT);
        drop(exec);
        finish(&mut scene.exec(&[], &["true"])).assert_status(0);
        scene.assert_nothing_is_recorded_within(MOMENT);
        scene.assert_clean();
    }
}

#[test]
fn nested_exec_cleans_up_on_both_levels() {
    for tier in possible(HOLDING) {
        let scene = Scene::new();
        let script = format!("$S --tier {tier} -- bash -c '{DAEMON} exit 11'");
        finish(&mut scene.exec(&["--tier", tier], &["bash", "-c", &script])).assert_status(11);
        scene.assert_clean();
    }
}

#[test]
fn a_hundred_copies_start_and_end_in_a_few_seconds() {
    let scene = Scene::new();
    let done = finish(&mut scene.exec(&["--copies", "100"], &["true"]));
    assert!(done.assert_status(0).took < Duration::from_secs(10), "{:?}", done.took);
    scene.assert_clean();
}
