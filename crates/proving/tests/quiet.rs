//! Runs an engine from start to stop in a separate process, and checks what it prints on its host's streams.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use snakepit_proving::{Deadline, ObservedProcess};
use tempfile::TempDir;

/// A life takes a second or two.
const IN_TIME: Duration = Duration::from_mins(1);

struct QuietRun {
    home: TempDir,
    command: Command,
}

impl QuietRun {
    fn new(mode: &str) -> Self {
        Self::started_by(Command::new(env!("CARGO_BIN_EXE_proving-life")), mode)
    }

    /// Starts a life whose standard error is redirected by the shell.
    fn in_shell(mode: &str, redirection: &str) -> Self {
        let mut shell = Command::new("sh");
        let script = format!("exec \"$0\" \"$@\" {redirection}");
        shell.args(["-c", script.as_str(), env!("CARGO_BIN_EXE_proving-life")]);
        Self::started_by(shell, mode)
    }

    fn started_by(mut command: Command, mode: &str) -> Self {
        let home = tempfile::tempdir().expect("a directory");
        let worker = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../snakepit/tests/workers/loud.py");
        command.arg(mode).arg(worker).arg(home.path().join("state"));
        command.stdin(Stdio::null()).env("RUST_BACKTRACE", "0");
        let mut life = Self { home, command };
        let (out, err) = (life.create("out"), life.create("err"));
        life.command.stdout(out).stderr(err);
        life
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn create(&self, name: &str) -> File {
        File::create(self.path(name)).expect("a file")
    }

    /// Runs the life to its end, which must be a success.
    fn live(&mut self) {
        let mut child = self.command.spawn().expect("started");
        let process = ObservedProcess::of(child.id() as i32);
        let in_time = process.ends_before(Deadline::after(IN_TIME));
        if !in_time {
            process.end();
        }
        let status = child.wait().expect("waited");
        let said = fs::read_to_string(self.path("err")).unwrap_or_default();
        assert!(in_time && status.success(), "{status}, in time: {in_time}\n{said}");
        let runs =
            fs::read_dir(self.path("state/runs")).map_or(0, |runs| runs.flatten().filter(is_run).count());
        assert_eq!(runs, 0, "runs are left");
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("a file")
    }
}

fn is_run(entry: &fs::DirEntry) -> bool {
    !entry.file_name().to_string_lossy().starts_with('.')
}

#[test]
fn with_the_defaults_a_whole_run_prints_nothing() {
    let mut life = QuietRun::new("library");
    life.live();
    assert_eq!((life.read("out"), life.read("err")), (String::new(), String::new()));
}

#[test]
fn with_program_logging_events_go_to_standard_error_only() {
    let mut life = QuietRun::new("program");
    life.live();
    assert_eq!(life.read("out"), "");
    let said = life.read("err");
    let line = |words: &[&str]| said.lines().any(|line| words.iter().all(|word| line.contains(word)));
    assert!(line(&["INFO", "snakepit.pool.ready"]), "{said}");
    assert!(line(&["INFO", "snakepit.script.shutdown.exit"]), "{said}");
    assert!(line(&["WARN", "snakepit.worker.died"]), "{said}");
    for word in ["imported", "out hello", "err hello", "info: log hello", "out goodbye"] {
        assert!(line(&["INFO", "snakepit::output", word]), "{word}: {said}");
    }
    assert!(!said.contains("DEBUG") && !said.contains('\u{1b}'), "{said}");
}

#[test]
fn with_a_subscriber_of_the_host_nothing_is_printed() {
    let mut life = QuietRun::new("guest");
    life.live();
    assert_eq!((life.read("out"), life.read("err")), (String::new(), String::new()));
}

#[test]
fn a_closed_standard_error_blocks_nothing() {
    for mode in ["library", "program"] {
        let mut life = QuietRun::in_shell(mode, "2>&-");
        life.live();
        assert_eq!(life.read("out"), "");
    }
}

#[test]
fn a_full_standard_error_blocks_nothing() {
    for mode in ["library", "program"] {
        let mut life = QuietRun::in_shell(mode, "2>/dev/full");
        assert!(Path::new("/dev/full").exists());
        life.live();
        assert_eq!(life.read("out"), "");
    }
}

#[test]
fn an_unread_standard_error_blocks_nothing() {
    for mode in ["library", "program"] {
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let mut life = QuietRun::new(mode);
        life.command.stderr(writer);
        life.live();
        drop(std::mem::replace(&mut life.command, Command::new("true")));
        let mut said = Vec::new();
        reader.read_to_end(&mut said).expect("what fitted into the pipe");
        assert_eq!(said.is_empty(), mode == "library");
        // The pipe was full. Of its 64 KiB, the end of each page is unused if the next line does not fit there.
        assert!(mode == "library" || said.len() > 48 * 1024, "{} bytes", said.len());
    }
}

#[test]
fn a_standard_error_without_a_reader_blocks_nothing() {
    for mode in ["library", "program"] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut life = QuietRun::new(mode);
        life.command.stderr(writer);
        life.live();
    }
}
