//! The examples under common wrapper programs exit in time with the right status, print nothing at exit, and leave no
//! process.
//!
//! About `crates/engine/src/lifecycle/exit.rs` and `crates/engine/src/lifecycle/signals.rs`.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The result of running an example in a shell.
struct Shell {
    output: Output,
    took: Duration,
    home: TempDir,
}

fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let path =
        test.ancestors().nth(2).expect("deps/ is in the build's directory").join("examples").join(name);
    assert!(path.exists(), "{} is not built: cargo build -p snakepit --examples", path.display());
    path
}

/// Runs a line of bash in which `$script`, `$graceful` and `$embedded` are the examples. Nothing may be left of them.
#[expect(clippy::disallowed_methods, reason = "a shell around a host, as a user starts it")]
fn bash(line: &str) -> Shell {
    let home = TempDir::new().expect("a directory");
    let began = Instant::now();
    let mut command = Command::new("bash");
    command.args(["-c", line]).env("SNAKEPIT_STATE_DIR", home.path().join("state")).stdin(Stdio::null());
    for variable in ["SNAKEPIT_SCRIPT_EXIT", "SNAKEPIT_SCRIPT_HALT", "SNAKEPIT_NO_HALT"] {
        command.env_remove(variable);
    }
    for name in ["script", "graceful", "embedded"] {
        command.env(name, example(name));
    }
    command.env("home", home.path());
    let output = command.output().expect("bash");
    let shell = Shell { output, took: began.elapsed(), home };
    shell.must_be_gone();
    shell
}

impl Shell {
    fn status(&self) -> i32 {
        let status = self.output.status;
        status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
    }

    fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    /// Checks that nothing is left. A host that was cut down leaves the rest to its keeper, which needs a moment.
    fn must_be_gone(&self) {
        let deadline = Instant::now() + crate::support::SOON;
        loop {
            let (runs, left) =
                (crate::support::runs_in(&self.home.path().join("state")), mentioning(self.home.path()));
            if runs.is_empty() && left.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "left: {runs:?}, {left:?}\n{}", self.stderr());
            std::thread::yield_now();
        }
    }
}

/// Returns the processes whose environment or command names this directory.
fn mentioning(home: &Path) -> Vec<String> {
    let home = home.to_string_lossy().into_owned();
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    let says = |file: PathBuf| {
        let bytes = std::fs::read(file).unwrap_or_default();
        bytes.windows(home.len()).any(|window| window == home.as_bytes())
    };
    let found = processes.filter(|process| {
        let is_number = process.file_name().to_string_lossy().parse::<u32>().is_ok_and(crate::support::runs);
        is_number && (says(process.path().join("environ")) || says(process.path().join("cmdline")))
    });
    found.map(|process| process.file_name().to_string_lossy().into_owned()).collect()
}

const MODES: [&str; 4] = ["none", "stop", "halt", "auto"];

#[test]
fn the_timeout_program_ends_a_script_in_every_mode() {
    for mode in MODES {
        let shell = bash(&format!("timeout 2 $script --exit-mode {mode} --sleep 600"));
        assert_eq!(shell.status(), 124, "{mode}: {}", shell.stderr());
        assert_eq!((shell.stdout().as_str(), shell.stderr().as_str()), ("Hello, World!\n", ""), "{mode}");
        assert!(shell.took < Duration::from_secs(20), "{mode}: {:?}", shell.took);
    }
}

/// `timeout` sends its signal to the program and then to the group, which may count as two.
#[test]
fn the_timeout_program_in_the_foreground_sends_one_signal() {
    let shell = bash("timeout --foreground --preserve-status 2 $graceful");
    assert_eq!(shell.status(), 0, "{}{}", shell.stdout(), shell.stderr());
    assert!(shell.stdout().contains("none was lost"), "{}", shell.stdout());
    let shell = bash("timeout --preserve-status 2 $graceful");
    assert!([0, 143].contains(&shell.status()), "{}{}", shell.stdout(), shell.stderr());
}

#[test]
fn a_reader_that_closes_the_pipe_does_not_change_the_status() {
    for mode in MODES {
        let shell =
            bash(&format!("$script --exit-mode {mode} --sleep 200ms | head -1; exit ${{PIPESTATUS[0]}}"));
        assert_eq!((shell.status(), shell.stdout().as_str()), (0, "Hello, World!\n"), "{mode}");
    }
    let shell = bash("$embedded | head -1; exit ${PIPESTATUS[0]}");
    assert_eq!((shell.status(), shell.stderr().as_str()), (0, ""));
    assert_eq!(shell.stdout(), "a library adds: 3\n");
    let shell = bash("timeout --foreground --preserve-status 2 $graceful | head -1; exit ${PIPESTATUS[0]}");
    assert_eq!((shell.status(), shell.stderr().as_str()), (0, ""));
}

#[test]
fn closed_or_full_streams_do_not_change_the_status() {
    let streams = [">&-", "2>&-", ">&- 2>&- <&-", ">/dev/full", "2>/dev/full", ">/dev/full 2>/dev/full"];
    for (index, stream) in streams.into_iter().enumerate() {
        let mode = MODES[index % MODES.len()];
        let shell = bash(&format!("$script --exit-mode {mode} {stream}"));
        assert_eq!(shell.status(), 0, "{mode} {stream}: {}", shell.stderr());
        let shell = bash(&format!("$script --exit-mode {mode} --fail {stream}"));
        assert_eq!(shell.status(), 1, "{mode} --fail {stream}: {}", shell.stderr());
    }
    for stream in [">&- 2>&-", ">/dev/full 2>/dev/full"] {
        let shell = bash(&format!("$embedded {stream}"));
        assert_eq!(shell.status(), 0, "embedded {stream}: {}", shell.stderr());
        let shell = bash(&format!("timeout --foreground --preserve-status 1 $graceful {stream}"));
        assert_eq!(shell.status(), 0, "graceful {stream}: {}", shell.stderr());
    }
}

/// The pipe takes the output of an example, and nothing ever reads it.
#[test]
fn an_unread_pipe_does_not_change_the_status() {
    for mode in MODES {
        let line = format!(
            "mkfifo $home/pipe; exec 3<>$home/pipe; $script --exit-mode {mode} --panic >&3 2>&3; exit $?"
        );
        let expected = if matches!(mode, "none" | "auto") { 101 } else { 1 };
        assert_eq!(bash(&line).status(), expected, "{mode}");
    }
}

/// The script waits in its own `write` forever. The second signal ends it, and ends the workers at once.
#[test]
fn a_pipe_that_is_full_does_not_keep_a_script_from_its_end() {
    let line = "mkfifo $home/pipe; exec 3<>$home/pipe; \
        dd if=/dev/zero of=$home/pipe bs=65536 count=1 status=none; \
        $script >&3 2>/dev/null & script=$!; \
        until [[ $(cat /proc/$script/wchan) == *pipe_w* || $(cat /proc/$script/syscall) == 1\\ * ]]; do :; done; \
        kill -TERM $script; until ! kill -TERM $script 2>/dev/null; do :; done; wait $script";
    let shell = bash(line);
    assert_eq!(shell.status(), 143, "{}", shell.stderr());
}

#[test]
fn no_terminal_no_hangup_and_another_session_change_nothing() {
    for wrapper in ["nohup", "setsid -w", "setsid -w nohup", "env -u HOME -u USER -u LANG", "nice -n 5"] {
        for example in ["$script --exit-mode stop", "$embedded"] {
            let shell =
                bash(&format!("{wrapper} {example} </dev/null 2>/dev/null | cat; exit ${{PIPESTATUS[0]}}"));
            assert_eq!(shell.status(), 0, "{wrapper} {example}");
            assert!(shell.stdout().contains("Hello, World!"), "{wrapper} {example}: {}", shell.stdout());
        }
    }
    let shell = bash(
        "nohup $graceful >$home/out 2>/dev/null & graceful=$!; until [[ -s $home/out ]]; do :; done; \
            kill -HUP $graceful; kill -TERM $graceful; wait $graceful",
    );
    assert_eq!(shell.status(), 0, "{}", shell.stderr());
}

/// As under cron: next to nothing in the environment, not even a home.
#[test]
fn an_empty_environment_is_enough() {
    for mode in MODES {
        // The state directory is ours, so that nothing is left elsewhere.
        let line = format!(
            "env -i PATH=/usr/local/bin:/usr/bin:/bin SNAKEPIT_STATE_DIR=$SNAKEPIT_STATE_DIR \
                setsid -w $script --exit-mode {mode} </dev/null"
        );
        let shell = bash(&line);
        assert_eq!((shell.status(), shell.stdout().as_str()), (0, "Hello, World!\n"), "{}", shell.stderr());
    }
    let line = "env -i PATH=/usr/local/bin:/usr/bin:/bin TMPDIR=$home $script; echo $?";
    let shell = bash(line);
    assert_eq!(shell.stdout(), "Hello, World!\n0\n", "{}", shell.stderr());
}

#[test]
fn nothing_is_written_on_the_way_out() {
    for mode in MODES {
        for (fault, expected) in [("", ""), ("--fail", ""), ("--embedded", "")] {
            let shell = bash(&format!("$script --exit-mode {mode} --no-halt {fault} 2>&1 1>/dev/null"));
            let said_by_main = matches!(mode, "none" | "auto") && fault == "--fail";
            if !said_by_main || (mode == "auto" && fault == "--fail") {
                assert_eq!(shell.stdout(), expected, "{mode} {fault}");
            }
        }
    }
    // Ended by one signal, and cut short by two.
    for signals in ["kill -TERM $script", "kill -TERM $script; kill -INT $script"] {
        let line = format!(
            "$script --sleep 600 >$home/out 2>$home/err & script=$!; \
                until [[ -s $home/out ]]; do :; done; {signals}; wait $script; status=$?; \
                cat $home/out $home/err; exit $status"
        );
        let shell = bash(&line);
        assert_eq!(shell.stdout(), "Hello, World!\n", "{signals}");
        assert!([0, 130, 143].contains(&shell.status()), "{signals}: {}", shell.status());
    }
}
