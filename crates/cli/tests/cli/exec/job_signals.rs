//! `snakepit exec` passes signals to its command as documented.

use std::os::unix::process::CommandExt;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, waitpid};

use crate::support::{PATIENCE, Running, Scene, TIERS, finish, patient_shell, pid, possible, send, state};

#[test]
fn int_quit_winch_and_the_users_own_are_passed_on() {
    for tier in possible(TIERS) {
        let scene = Scene::new();
        let traps = "for s in INT QUIT WINCH USR1 USR2; do trap \"echo got $s\" $s; done";
        let mut exec = Running::start(&mut scene.exec(&["--tier", tier], &patient_shell(traps)));
        exec.expect_line("ready");
        for (signal, name) in [
            (Signal::INT, "INT"),
            (Signal::QUIT, "QUIT"),
            (Signal::WINCH, "WINCH"),
            (Signal::USR1, "USR1"),
            (Signal::USR2, "USR2"),
        ] {
            exec.signal(signal);
            exec.expect_line(&format!("got {name}"));
        }
        exec.signal(Signal::TERM);
        exec.finish().assert_status(143);
        scene.assert_clean();
    }
}

#[test]
fn sigint_ends_a_command_without_a_handler_with_130() {
    let scene = Scene::new();
    let mut exec = Running::start(&mut scene.exec(&[], &patient_shell("")));
    exec.expect_line("ready");
    exec.signal(Signal::INT);
    exec.finish().assert_status(130);
    scene.assert_clean();
}

#[test]
fn term_and_hup_are_passed_on() {
    for (signal, status) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
        let scene = Scene::new();
        let mut exec = Running::start(&mut scene.exec(&["--grace", "1h"], &patient_shell("")));
        exec.expect_line("ready");
        exec.signal(signal);
        exec.finish().assert_status(status);
        scene.assert_clean();
    }
}

#[test]
fn the_first_term_or_hup_starts_the_grace_and_then_comes_kill() {
    for tier in possible(TIERS) {
        for signal in [Signal::TERM, Signal::HUP] {
            let scene = Scene::new();
            let traps = "trap 'echo no' TERM HUP";
            let mut exec =
                Running::start(&mut scene.exec(&["--tier", tier, "--grace", "300ms"], &patient_shell(traps)));
            exec.expect_line("ready");
            let sent = Instant::now();
            exec.signal(signal);
            exec.expect_line("no");
            let done = exec.finish();
            let took = sent.elapsed();
            done.assert_status(137);
            assert!(took >= Duration::from_millis(300), "killed after {took:?}");
            scene.assert_clean();
        }
    }
}

#[test]
fn a_second_term_does_not_cut_the_grace() {
    let scene = Scene::new();
    let traps = "trap 'echo first; sleep 0.5; exit 3' TERM";
    let mut exec = Running::start(&mut scene.exec(&["--grace", "10s"], &patient_shell(traps)));
    exec.expect_line("ready");
    exec.signal(Signal::TERM);
    exec.expect_line("first");
    exec.signal(Signal::TERM);
    exec.signal(Signal::HUP);
    exec.finish().assert_status(3);
    scene.assert_clean();
}

#[test]
fn all_copies_receive_the_signal() {
    let scene = Scene::new();
    let mut exec = Running::start(&mut scene.exec(&["--copies", "5"], &patient_shell("trap 'exit 9' TERM")));
    for _ in 0..5 {
        exec.expect_line("ready");
    }
    exec.signal(Signal::TERM);
    exec.finish().assert_status(9);
    scene.assert_clean();
}

#[test]
fn a_stopped_command_can_still_be_ended() {
    let scene = Scene::new();
    let mut exec = Running::start(&mut scene.exec(&["--grace", "1h"], &patient_shell("echo $$")));
    let worker = pid(&exec.expect_line(""));
    exec.expect_line("ready");
    send(worker, Signal::STOP);
    exec.signal(Signal::TERM);
    exec.finish().assert_status(143);
    scene.assert_clean();
}

#[test]
fn signals_ignored_at_the_start_stay_ignored() {
    let scene = Scene::new();
    let mut nohup = scene.command("bash");
    nohup
        .args(["-c", "trap '' HUP; exec $S --grace 100ms -- \"$@\"", "-"])
        .args(patient_shell("trap 'echo usr' USR1"));
    let mut exec = Running::start(&mut nohup);
    exec.expect_line("ready");
    exec.signal(Signal::HUP);
    exec.signal(Signal::USR1);
    exec.expect_line("usr");
    exec.signal(Signal::TERM);
    exec.finish().assert_status(143);
    scene.assert_clean();
}

#[test]
fn the_command_starts_with_the_signals_that_exec_was_started_with() {
    for tier in possible(TIERS) {
        let scene = Scene::new();
        let mut exec = scene.exec(&["--tier", tier], &["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"]);
        let done = finish(&mut exec);
        done.assert_status(0);
        for line in done.stdout.lines() {
            let mask = u64::from_str_radix(line.split_whitespace().nth(1).expect("a mask"), 16).expect("hex");
            // The two lowest real-time signals belong to the C library.
            assert_eq!(mask & 0x7fff_ffff, 0, "{tier}: {line}");
        }
        scene.assert_clean();
    }
}

/// Waits until a child of ours is stopped, as a shell does.
#[track_caller]
fn wait_until_stopped(child: Pid) {
    let (_, status) = waitpid(Some(child), WaitOptions::UNTRACED).expect("waitpid").expect("a status");
    assert!(status.stopped(), "{status:?}");
}

#[test]
fn tstp_stops_the_command_and_exec_and_cont_continues_both() {
    for tier in possible(TIERS) {
        let scene = Scene::new();
        let mut command = scene.exec(&["--tier", tier], &patient_shell("trap 'echo usr' USR1; echo $$"));
        // In its own group the process can be continued by us, so the kernel lets it stop.
        let mut exec = Running::start(command.process_group(0));
        let printed = exec.expect_line("");
        exec.expect_line("ready");
        exec.signal(Signal::TSTP);
        wait_until_stopped(exec.pid());
        if tier != "namespace" {
            let until = Instant::now() + PATIENCE;
            while state(pid(&printed)) != Some('T') {
                assert!(Instant::now() < until, "the command was not stopped");
                std::thread::yield_now();
            }
        }
        exec.signal(Signal::CONT);
        exec.signal(Signal::USR1);
        exec.expect_line("usr");
        exec.signal(Signal::TERM);
        exec.finish().assert_status(143);
        scene.assert_clean();
    }
}
