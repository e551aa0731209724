//! The program and the examples in the environments where people run them: as started by Docker, containerd, Podman,
//! gVisor and systemd.
//!
//! A tier either works there, and nothing survives a `kill -9` of the host, or it is refused in one sentence. The
//! defect behind these tests: no tier started under the default profiles of Docker and containerd, and `doctor`
//! reported no problem.

mod doctor;
mod examples;
mod exec;
mod expected;
mod kills;
mod records;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use snakepit_proving::confinement::{Profile, profile};
use snakepit_proving::deadline::recheck;
use snakepit_proving::{Deadline, ObservedProcess, built, random};
use tempfile::TempDir;

pub(crate) use expected::{ExpectedResult, TIERS, expected};

/// Defines one test per profile for each of the named functions, which take the scene.
macro_rules! each_profile {
    ($($body:ident),+ $(,)?) => { $(
        mod $body {
            #[test]
            fn docker() {
                crate::prove("docker", super::$body);
            }

            #[test]
            fn containerd() {
                crate::prove("containerd", super::$body);
            }

            #[test]
            fn podman() {
                crate::prove("podman", super::$body);
            }

            #[test]
            fn gvisor() {
                crate::prove("gvisor", super::$body);
            }

            #[test]
            fn a_kernel_without_pidfds() {
                crate::prove("old-kernel", super::$body);
            }

            #[test]
            fn systemd() {
                crate::prove("systemd", super::$body);
            }

            #[test]
            fn systemd_with_proc_subset_pid() {
                crate::prove("systemd-pid-subset", super::$body);
            }
        }
    )+ };
}
pub(crate) use each_profile;

fn prove(name: &str, body: fn(&ConfinedHome)) {
    if !snakepit_proving::is_root() {
        // To pass silently would be misleading.
        eprintln!("NOT PROVEN HERE: only root can confine a process as {name} does; run ./test as root");
        return;
    }
    let home = ConfinedHome::new(profile(name).unwrap_or_else(|| panic!("no profile is called {name}")));
    body(&home);
    home.nothing_is_recorded();
}

/// One profile, with its own directories.
struct ConfinedHome {
    profile: &'static Profile,
    home: TempDir,
}

/// The result of a program and its output.
#[derive(Debug)]
struct ProgramOutput {
    status: Option<i32>,
    stdout: String,
    stderr: String,
}

impl ConfinedHome {
    fn new(profile: &'static Profile) -> Self {
        let home = tempfile::Builder::new().prefix(&random::word()).tempdir().expect("a directory");
        std::fs::create_dir(home.path().join("tmp")).expect("a directory for temporary files");
        Self { profile, home }
    }

    fn state_dir(&self) -> PathBuf {
        self.home.path().join("state")
    }

    fn temporary_files(&self) -> PathBuf {
        self.home.path().join("tmp")
    }

    /// Returns a program, started as the runtime starts it.
    fn confined(&self, program: &Path) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_proving-confined"));
        command.arg(self.profile.name).arg("--").arg(program).stdin(Stdio::null());
        command.env("SNAKEPIT_STATE_DIR", self.state_dir()).env("TMPDIR", self.temporary_files());
        command
    }

    /// Returns `snakepit …`.
    fn snakepit(&self, words: &[&str]) -> Command {
        let mut command = self.confined(&built::snakepit());
        command.args(words);
        command
    }

    /// Returns the tiers that are available here.
    fn tiers(&self) -> Vec<&'static str> {
        TIERS
            .into_iter()
            .filter(|tier| matches!(expected(self.profile, tier), ExpectedResult::Works))
            .collect()
    }

    /// Waits until no run is recorded.
    fn nothing_is_recorded(&self) {
        recheck(Deadline::patient(), "the removal of every run", || self.runs().is_empty().then_some(()));
    }

    fn runs(&self) -> Vec<String> {
        let Ok(runs) = std::fs::read_dir(self.state_dir().join("runs")) else { return Vec::new() };
        let names = runs.filter_map(|run| run.ok()?.file_name().into_string().ok());
        names.filter(|name| !name.starts_with('.')).collect()
    }
}

/// Runs a program to its end.
fn finish(command: &mut Command) -> ProgramOutput {
    finish_before(Deadline::patient(), command)
}

/// Runs a program that takes longer than others.
fn finish_before(deadline: Deadline, command: &mut Command) -> ProgramOutput {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start a program");
    finish_child(child, deadline)
}

/// Waits for the end of a program whose output fits in a pipe.
fn finish_child(mut child: Child, deadline: Deadline) -> ProgramOutput {
    let process = ObservedProcess::of(child.id().cast_signed());
    if !process.ends_before(deadline) {
        let _ = child.kill();
        panic!("it did not end in time");
    }
    let status = child.wait().expect("its status").code();
    let (mut stdout, mut stderr) = (String::new(), String::new());
    child.stdout.take().map(|mut pipe| pipe.read_to_string(&mut stdout));
    child.stderr.take().map(|mut pipe| pipe.read_to_string(&mut stderr));
    ProgramOutput { status, stdout, stderr }
}

/// Fails unless the output is a refusal: the status for failures of snakepit itself, one sentence with these words, and
/// at most one more line with the way out.
fn must_be_refusal(output: &ProgramOutput, words: &[&str]) {
    assert_eq!(output.status, Some(125), "{output:?}");
    let lines: Vec<&str> = output.stderr.lines().collect();
    assert!(matches!(lines.len(), 1 | 2) && lines[0].starts_with("snakepit: "), "{output:?}");
    for word in words {
        assert!(lines[0].contains(word), "{word:?} is missing: {output:?}");
    }
}
