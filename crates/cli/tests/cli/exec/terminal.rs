//! On a terminal, `snakepit exec` behaves like a shell's own job. The tests type keys on a real pty at a real bash.

use crate::support::pty::{CTRL_BACKSLASH, CTRL_C, CTRL_D, CTRL_Z, Pty, require};
use crate::support::{self, MOMENT, Scene, TIERS, possible};

/// Runs the test in each tier, on a new terminal with a shell.
fn in_each_tier(act: impl Fn(&Scene, &mut Pty, &str)) {
    for tier in possible(TIERS) {
        let scene = Scene::new();
        let mut pty = Pty::bash(&scene);
        act(&scene, &mut pty, &format!("$S --tier {tier}"));
        assert!(pty.leave().success());
        scene.assert_clean();
    }
}

/// Starts a cat and waits until it has the terminal. Keys typed earlier would be echoed by another process.
#[track_caller]
fn start_cat(pty: &mut Pty, exec: &str) {
    pty.type_line(&format!("{exec} -- sh -c 'echo be\"\"gun; exec cat'"));
    pty.expect("begun\r\n");
}

/// Asserts that the shell reads input line by line and with echo.
#[track_caller]
fn expect_a_sane_terminal(pty: &mut Pty) {
    // Bash sets the modes itself while it reads a line, so the modes that a program finds are checked.
    pty.type_line("stty -a | tr ' ' '\\n' | grep -x -E -e '-?(isig|icanon|echo)' | xargs echo mo\"\"des:");
    pty.expect("modes: isig icanon echo");
    pty.prompt();
}

#[test]
fn cat_reads_what_is_typed_until_ctrl_d() {
    in_each_tier(|_, pty, exec| {
        start_cat(pty, exec);
        pty.type_line("hello");
        pty.expect("hello\r\nhello\r\n");
        pty.type_keys(CTRL_D);
        pty.prompt();
        pty.expect_status(0);
    });
}

#[test]
fn ctrl_c_ends_the_command_and_gives_the_prompt_back() {
    in_each_tier(|scene, pty, exec| {
        start_cat(pty, exec);
        pty.type_line("hello");
        pty.expect("hello\r\nhello\r\n");
        pty.type_keys(CTRL_C);
        pty.prompt();
        assert_eq!(scene.alive().len(), 1, "only the shell is alive: {:?}", scene.alive());
        pty.expect_status(130);
        expect_a_sane_terminal(pty);
    });
}

#[test]
fn ctrl_backslash_ends_the_command_with_131() {
    in_each_tier(|_, pty, exec| {
        pty.type_line("ulimit -c 0");
        pty.prompt();
        start_cat(pty, exec);
        pty.type_line("hello");
        pty.expect("hello\r\nhello\r\n");
        pty.type_keys(CTRL_BACKSLASH);
        pty.prompt();
        pty.expect_status(131);
    });
}

#[test]
fn ctrl_z_stops_the_job_and_fg_continues_it() {
    in_each_tier(|_, pty, exec| {
        start_cat(pty, exec);
        pty.type_line("before");
        pty.expect("before\r\nbefore\r\n");
        for round in ["once", "twice"] {
            pty.type_keys(CTRL_Z);
            pty.expect("Stopped");
            pty.prompt();
            pty.type_line(&format!("echo the shell re\"\"ads {round}"));
            pty.expect(&format!("the shell reads {round}"));
            pty.prompt();
            pty.type_line("fg");
            pty.expect("exec cat'\r\n");
            pty.type_line(round);
            pty.expect(&format!("{round}\r\n{round}\r\n"));
        }
        pty.type_keys(CTRL_D);
        pty.prompt();
        pty.expect_status(0);
    });
}

#[test]
fn a_cat_in_the_background_does_not_steal_the_shells_input() {
    in_each_tier(|_, pty, exec| {
        pty.type_line(&format!("{exec} -- cat &"));
        pty.prompt();
        // The shell reports that its job has stopped before one of the next prompts.
        pty.type_line("until jobs -s | grep -q cat; do :; done; jobs | tr a-z A-Z");
        pty.expect("STOPPED");
        pty.prompt();
        pty.type_line("echo the shell re\"\"ads this");
        pty.expect("the shell reads this");
        pty.prompt();
        pty.type_line("fg");
        pty.expect("cat");
        pty.type_line("now mine");
        pty.expect("now mine\r\nnow mine\r\n");
        pty.type_keys(CTRL_C);
        pty.prompt();
        pty.expect_status(130);
    });
}

#[test]
fn a_stopped_job_can_be_ended_by_the_shells_kill() {
    in_each_tier(|_, pty, exec| {
        start_cat(pty, exec);
        pty.type_line("hello");
        pty.expect("hello\r\nhello\r\n");
        pty.type_keys(CTRL_Z);
        pty.expect("Stopped");
        pty.prompt();
        // A shell does not wait for a job that it still believes to be stopped.
        pty.type_line(
            "P=$(jobs -p); kill %1; while kill -0 $P 2> /dev/null; do :; done; wait $P; echo sta\"\"tus=$?",
        );
        pty.expect("status=143");
        pty.prompt();
    });
}

#[test]
fn a_job_that_runs_in_the_background_can_be_brought_to_the_front() {
    in_each_tier(|_, pty, exec| {
        pty.type_line(&format!("{exec} -- sh -c 'sleep 0.3; exec cat' &"));
        pty.prompt();
        pty.type_line("fg");
        pty.expect("cat");
        pty.type_line("hello");
        pty.expect("hello\r\n");
        pty.expect("hello\r\n");
        pty.type_keys(CTRL_D);
        pty.prompt();
        pty.expect_status(0);
    });
}

#[test]
fn a_background_job_without_input_just_runs() {
    in_each_tier(|_, pty, exec| {
        pty.type_line(&format!("{exec} -- sh -c 'exit 6' & wait $!; echo sta\"\"tus=$?"));
        pty.expect("status=6");
        pty.prompt();
    });
}

#[test]
fn less_pages_and_gives_the_terminal_back() {
    require("less", "less");
    in_each_tier(|scene, pty, exec| {
        let file = scene.state_dir().join("numbers");
        let lines: Vec<_> = (1..=500).map(|line| format!("line {line}.")).collect();
        std::fs::write(&file, lines.join("\n")).expect("a file to page");
        pty.type_line(&format!("{exec} -- less {}", file.display()));
        pty.expect("line 23.");
        pty.type_keys(" ");
        pty.expect("line 46.");
        pty.expect(":");
        // A signal that comes just before `less` reads the next key would have to wait for that key.
        scene.wait_until_asleep("less");
        pty.type_keys(CTRL_Z);
        pty.expect("Stopped");
        pty.prompt();
        expect_a_sane_terminal(pty);
        pty.type_line("fg");
        pty.expect("line 46.");
        pty.type_keys("G");
        pty.expect("line 500.");
        pty.type_keys("q");
        pty.prompt();
        pty.expect_status(0);
        expect_a_sane_terminal(pty);
    });
}

#[test]
fn an_interactive_bash_has_job_control_of_its_own() {
    in_each_tier(|_, pty, exec| {
        pty.type_line(&format!("{exec} -- env PS1='inn''er> ' bash --norc --noprofile -i"));
        pty.expect("inner> ");
        pty.type_line("echo be\"\"gun; cat");
        pty.expect("begun\r\n");
        pty.type_line("hello");
        pty.expect("hello\r\nhello\r\n");
        pty.type_keys(CTRL_Z);
        pty.expect("Stopped");
        pty.expect("inner> ");
        pty.type_line("fg");
        pty.expect("cat\r\n");
        pty.type_line("again");
        pty.expect("again\r\nagain\r\n");
        pty.type_keys(CTRL_C);
        pty.expect("inner> ");
        pty.type_line("echo in\"\"ner=$?");
        pty.expect("inner=130");
        pty.expect("inner> ");
        pty.type_line("exit 7");
        pty.prompt();
        pty.expect_status(7);
        expect_a_sane_terminal(pty);
    });
}

#[test]
fn terminal_modes_are_restored_after_a_command_was_killed() {
    in_each_tier(|_, pty, exec| {
        pty.type_line(&format!("{exec} -- sh -c 'stty raw -echo; kill -9 $$'"));
        pty.expect("prompt> ");
        pty.expect_status(137);
        expect_a_sane_terminal(pty);
    });
}

#[test]
fn a_pager_in_a_pipeline_keeps_the_terminal() {
    require("less", "less");
    in_each_tier(|_, pty, exec| {
        pty.type_line(&format!("{exec} -- seq -f 'line %g.' 500 | less"));
        pty.expect("line 23.");
        pty.type_keys(" ");
        pty.expect("line 46.");
        pty.type_keys("q");
        pty.prompt();
        pty.type_line(&format!("seq -f 'line %g.' 500 | {exec} -- less"));
        pty.expect("line 23.");
        pty.type_keys(" ");
        pty.expect("line 46.");
        pty.type_keys("q");
        pty.prompt();
        expect_a_sane_terminal(pty);
    });
}

#[test]
fn ctrl_c_ends_a_whole_pipeline() {
    in_each_tier(|scene, pty, exec| {
        pty.type_line(&format!("{exec} -- sh -c 'echo be\"\"gun >&2; exec sleep 1000' | cat"));
        pty.expect("begun\r\n");
        pty.type_keys(CTRL_C);
        pty.prompt();
        assert_eq!(scene.alive().len(), 1, "only the shell is alive: {:?}", scene.alive());
    });
}

#[test]
fn a_script_is_stopped_and_continued_together_with_exec() {
    in_each_tier(|_, pty, exec| {
        pty.type_line(&format!(
            "bash -c '{exec} -- sh -c \"echo be\\\"\\\"gun; exec cat\"; echo aft\"\"er=$?'"
        ));
        pty.expect("begun\r\n");
        pty.type_line("hello");
        pty.expect("hello\r\nhello\r\n");
        pty.type_keys(CTRL_Z);
        pty.expect("Stopped");
        pty.prompt();
        pty.type_line("fg");
        pty.expect("er=$?'\r\n");
        pty.type_line("again");
        pty.expect("again\r\nagain\r\n");
        pty.type_keys(CTRL_D);
        pty.expect("after=0");
        pty.prompt();
    });
}

#[test]
fn ctrl_c_also_ends_the_shell_loop_around_exec() {
    in_each_tier(|_, pty, exec| {
        pty.type_line(&format!("for i in 1 2 3; do {exec} -- sh -c \"echo round=$i.; exec cat\"; done"));
        pty.expect("round=1.");
        pty.type_keys(CTRL_C);
        pty.prompt();
        pty.type_line("echo sta\"\"tus=$?.");
        pty.expect("status=130.");
        pty.prompt();
    });
}

#[test]
fn copies_on_a_terminal_end_on_ctrl_c() {
    in_each_tier(|scene, pty, exec| {
        pty.type_line(&format!("{exec} --copies 3 -- sh -c 'echo be\"\"gun; exec sleep 1000'"));
        for _ in 0..3 {
            pty.expect("begun\r\n");
        }
        pty.type_keys(CTRL_C);
        pty.prompt();
        pty.expect_status(130);
        assert_eq!(scene.alive().len(), 1, "only the shell is alive: {:?}", scene.alive());
    });
}

#[test]
fn copies_on_a_terminal_stop_on_ctrl_z_and_go_on_with_fg() {
    in_each_tier(|_, pty, exec| {
        let script =
            "trap \"echo con\\\"\\\"tinued\" CONT; echo be\"\"gun; while :; do sleep 1000 & wait; done";
        pty.type_line(&format!("{exec} --copies 2 -- bash -c '{script}'"));
        pty.expect("begun\r\n");
        pty.expect("begun\r\n");
        pty.type_keys(CTRL_Z);
        pty.expect("Stopped");
        pty.prompt();
        pty.type_line("fg");
        // The shell prints what it continues before it hands over the terminal. Only now does Ctrl-C reach the copies.
        pty.expect("continued\r\n");
        pty.expect("continued\r\n");
        pty.type_keys(CTRL_C);
        pty.prompt();
        pty.expect_status(130);
    });
}

#[test]
fn hanging_up_ends_everything() {
    for tier in possible(TIERS) {
        let scene = Scene::new();
        let mut pty = Pty::bash(&scene);
        pty.type_line(&format!(
            "$S --tier {tier} --grace 200ms -- sh -c 'trap \"\" HUP; echo be\"\"gun; sleep 1000'"
        ));
        pty.expect("begun\r\n");
        let mut shell = pty.hang_up();
        scene.assert_all_end_within(support::PATIENCE);
        shell.wait().expect("the shell's status");
        scene.assert_clean();
    }
}

#[test]
fn hanging_up_ends_a_stopped_job_too() {
    for tier in possible(TIERS) {
        let scene = Scene::new();
        let mut pty = Pty::bash(&scene);
        start_cat(&mut pty, &format!("$S --tier {tier}"));
        pty.type_line("hello");
        pty.expect("hello\r\nhello\r\n");
        pty.type_keys(CTRL_Z);
        pty.expect("Stopped");
        pty.prompt();
        let mut shell = pty.hang_up();
        scene.assert_all_end_within(support::PATIENCE);
        shell.wait().expect("the shell's status");
        scene.assert_clean();
    }
}

#[test]
fn as_a_session_leader_exec_cannot_be_stopped_for_ever() {
    for tier in possible(TIERS) {
        let scene = Scene::new();
        let state_dir = scene.state_dir().to_string_lossy().into_owned();
        let program = env!("CARGO_BIN_EXE_snakepit");
        let mut pty =
            Pty::start(&scene, &[program, "exec", "--tier", tier, "--state-dir", &state_dir, "--", "cat"]);
        pty.type_line("hello");
        pty.expect("hello\r\nhello\r\n");
        pty.type_keys(CTRL_Z);
        pty.type_line("again");
        pty.expect("again\r\n");
        pty.expect("again\r\n");
        pty.type_keys(CTRL_C);
        assert_eq!(pty.end().code(), Some(130));
        scene.assert_all_end_within(MOMENT);
        scene.assert_clean();
    }
}
