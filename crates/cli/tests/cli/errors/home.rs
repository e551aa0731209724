//! A home directory in which commands fail, and the transcripts of these commands.
#![expect(clippy::disallowed_methods, reason = "the tests start the program, as a user would")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A home directory with files that are wrong in many ways.
pub(super) struct Home(pub(super) tempfile::TempDir);

impl Home {
    pub(super) fn new() -> Self {
        let home = Self(tempfile::tempdir().expect("a directory"));
        for dir in [
            "empty",
            "taken",
            "venv/lib/python3.8/site-packages",
            "packaged/lib/python3.12/site-packages/snakepit",
            "unwritable/lib/python3.12",
        ] {
            fs::create_dir_all(home.path(dir)).expect("a directory");
        }
        for (name, text) in [
            ("plain", "#!/bin/sh\n"),
            ("list.json", "[1]"),
            ("not.json", "{"),
            ("not.toml", "[pool.a]\nworker = \n"),
            ("key.toml", "[pool.a]\nworker = \"worker.py\"\nworkrs = 2\n"),
            ("none.toml", ""),
            ("absent.toml", "[pool.a]\nworker = \"absent.py\"\n"),
            ("python.toml", "[pool.a]\nworker = \"project/worker.py\"\ninterpreter = \"venv/bin/python\"\n"),
            ("loops.toml", LOOPS),
            ("taken/worker.py", ""),
            ("taken/my-lines", ""),
            ("empty.jsonl", ""),
            ("line.jsonl", "{\"input\": 1, \"expected\": 1}\nx\n"),
            ("input.jsonl", "{\"id\": 1}\n"),
            ("data.jsonl", "{\"input\": {\"a\": 1, \"b\": 2}, \"expected\": 3}\n"),
            ("other.eval.jsonl", "{\"what\": \"this is\"}\n"),
            ("venv/pyvenv.cfg", ""),
            ("packaged/pyvenv.cfg", ""),
            ("backup.db", ""),
            ("exits.py", "raise SystemExit('no model here')\n"),
            ("silent.py", "import time\ntime.sleep(60)\n"),
            ("hard.py", HARD),
            ("type.toml", "[pool.a]\nworker = \"worker.py\"\nworkers = \"two\"\n"),
            ("range.toml", "[pool.a]\nworker = \"worker.py\"\nworkers = 0\n"),
            ("two.jsonl", TWO_SAMPLES),
            ("free.toml", &LOOPS.replace("numbres", "numbers")),
            ("unwritable/pyvenv.cfg", ""),
            ("table.toml", "[pol.a]\nworker = \"worker.py\"\n"),
            ("command.toml", &LOOPS.replace("add", "sub").replace("numbres", "numbers")),
            (
                "pool.toml",
                &LOOPS.replace("command", "pool = \"wroker\"\ncommand").replace("numbres", "numbers"),
            ),
        ] {
            fs::write(home.path(name), text).expect("a file");
        }
        fs::write(home.path("noise"), [0x7f, 0xff, 0x01]).expect("a file");
        fs::set_permissions(home.path("noise"), fs::Permissions::from_mode(0o755)).expect("its mode");
        fs::create_dir(home.path("open")).expect("a directory");
        fs::set_permissions(home.path("open"), fs::Permissions::from_mode(0o777)).expect("its mode");
        std::os::unix::fs::symlink("empty", home.path("link")).expect("a link");
        std::os::unix::fs::symlink("/proc", home.path("unwritable/lib/python3.12/site-packages"))
            .expect("a link");
        for words in [
            &["init", "project"][..],
            &["mailbox", "send", "sqlite:mail.db#numbers", "1"],
            &["mailbox", "receive", "sqlite:mail.db#numbers"],
        ] {
            assert!(home.run(words, &home.path("")).status.success(), "{words:?}");
        }
        home
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(super) fn run(&self, words: &[&str], current_dir: &Path) -> Output {
        // A first word such as PATH=… sets a variable, as in a shell.
        let assigned = words.first().and_then(|word| word.split_once('='));
        let mut program = Command::new(env!("CARGO_BIN_EXE_snakepit"));
        program.args(&words[usize::from(assigned.is_some())..]).current_dir(current_dir);
        self.finish(&mut program, assigned)
    }

    /// Runs a line of a shell, in which `snakepit` is the program.
    pub(super) fn shell(&self, line: &str) -> Output {
        let line = line.replace("snakepit", env!("CARGO_BIN_EXE_snakepit"));
        self.finish(Command::new("sh").args(["-c", &line]).current_dir(self.path("")), None)
    }

    fn finish(&self, program: &mut Command, assigned: Option<(&str, &str)>) -> Output {
        program
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .envs(assigned)
            .env("HOME", self.path("home"))
            .env("SNAKEPIT_STATE_DIR", self.path("state"))
            .stdin(Stdio::null())
            .output()
            .expect("the program")
    }

    /// Returns the command line, its exit status and stderr, with the home directory as `~`.
    pub(super) fn transcript(&self, current_dir: &str, cases: &[&[&str]]) -> String {
        let mut text = String::new();
        for words in cases {
            let done = self.run(words, &self.path(current_dir));
            let shown: Vec<String> =
                words
                    .iter()
                    .map(|word| {
                        if word.contains([' ', '"', '(']) { format!("'{word}'") } else { (*word).to_owned() }
                    })
                    .collect();
            let prompt = match shown.split_first() {
                Some((assigned, rest)) if assigned.contains('=') => {
                    format!("{assigned} snakepit {}", rest.join(" "))
                }
                _ => format!("snakepit {}", shown.join(" ")),
            };
            text.push_str(&self.shown(&prompt, done));
        }
        text
    }

    pub(super) fn shown(&self, prompt: &str, done: Output) -> String {
        let status = done.status.code().expect("an exit status");
        let stderr = String::from_utf8(done.stderr).expect("text");
        assert!(!stderr.is_empty() && !stderr.contains("panicked"), "{prompt}: {stderr}");
        assert_ne!(status, 0, "{prompt}: {stderr}");
        let text = format!("$ {prompt}\n[exit status {status}]\n{}\n", steady(&stderr));
        text.replace(&self.0.path().display().to_string(), "~")
    }
}

/// Replaces process ids and sizes, and removes the SDK's own part of a stack.
fn steady(stderr: &str) -> String {
    let is_ours = |line: &&str| !line.starts_with("Current thread") && !line.contains("/state/python-");
    let line = |line: &str| {
        let mut words: Vec<&str> = line.split(' ').collect();
        for at in 1..words.len() {
            match (words[at - 1], words[at]) {
                ("(pid", _) => words[at] = "N)",
                (_, "MiB") => words[at - 1] = "N",
                _ => {}
            }
        }
        words.join(" ") + "\n"
    };
    stderr.lines().filter(is_ours).map(line).collect()
}

const LOOPS: &str = "\
[pool.worker]
worker = \"project/worker.py\"

[loop.sums]
command = \"add\"
mailbox = \"sqlite:mail.db#numbres\"
";

const TWO_SAMPLES: &str = "\
{\"input\": {\"a\": 1, \"b\": 2}, \"expected\": 3}
{\"input\": {\"a\": 2, \"b\": 2}, \"expected\": 4}
";

/// A worker whose commands end badly.
const HARD: &str = "\
import os, snakepit, time

@snakepit.command
def leave():
    os._exit(3)

@snakepit.command
def wait():
    time.sleep(60)

@snakepit.command
def unprintable():
    return {None: 1}
";
