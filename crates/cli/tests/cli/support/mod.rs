//! The tools of every test of the program: a scene with a state directory, a mark that finds every process of the test,
//! and a bystander process that must survive.
#![expect(clippy::disallowed_methods, reason = "the tests start real processes, as a user would")]

pub(crate) mod pty;
#[path = "../../../../proving/src/unproven.rs"]
#[expect(unreachable_pub, reason = "the file belongs to the proving crate")]
mod unproven;

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
pub(crate) use unproven::unproven;

/// The time after which a test gives up. Nothing here needs more than a fraction of it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The time for which killed processes may still be found on a busy machine.
pub(crate) const MOMENT: Duration = Duration::from_secs(2);

pub(crate) const TIERS: [&str; 4] = ["auto", "namespace", "shim", "group"];

/// Returns the tiers that this machine offers. Reports a missing tier as unproven.
pub(crate) fn possible<const N: usize>(tiers: [&'static str; N]) -> impl Iterator<Item = &'static str> {
    let refusal = tiers.contains(&"namespace").then(|| unproven::namespace_refusal(None)).flatten();
    refusal.as_deref().inspect(|why| unproven(why));
    tiers.into_iter().filter(move |tier| *tier != "namespace" || refusal.is_none())
}

/// Reports whether `unshare` can make these namespaces. Reports a refusal as unproven.
pub(crate) fn can_unshare(options: &[&str]) -> bool {
    let refusal = unproven::unshare_refusal(None, options);
    if let Some(why) = &refusal {
        unproven(&format!("`unshare {}` ({why})", options.join(" ")));
    }
    refusal.is_none()
}

const MARK: &str = "SNAKEPIT_TEST_MARK";

/// The state directory and the processes of one test.
pub(crate) struct Scene {
    state: tempfile::TempDir,
    mark: String,
    bystander: Child,
}

impl Scene {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let mark = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let bystander =
            Command::new("sleep").arg("infinity").stdin(Stdio::null()).spawn().expect("a bystander");
        Self { state: tempfile::tempdir().expect("a state directory"), mark, bystander }
    }

    pub(crate) fn state_dir(&self) -> &Path {
        self.state.path()
    }

    /// Returns `snakepit VERB --state-dir …`, without input.
    pub(crate) fn verb(&self, verb: &str) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_snakepit"));
        command.arg(verb).arg("--state-dir").arg(self.state_dir());
        command
    }

    /// Returns `snakepit exec --state-dir … OPTIONS -- COMMAND`, without input.
    pub(crate) fn exec<S: AsRef<OsStr>>(&self, options: &[&str], command: &[S]) -> Command {
        let mut exec = self.verb("exec");
        exec.args(options).arg("--").args(command);
        exec
    }

    /// Returns any program that belongs to this scene. `$S` is the program's command line up to the options of `exec`.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .stdin(Stdio::null())
            .env(MARK, &self.mark)
            .env("S", self.shell_words())
            .env_remove("SNAKEPIT_STATE_DIR");
        command
    }

    fn shell_words(&self) -> String {
        format!("{} exec --state-dir {}", env!("CARGO_BIN_EXE_snakepit"), self.state_dir().display())
    }

    /// Returns the processes of this scene that are alive. A zombie has no environment and is not found.
    pub(crate) fn alive(&self) -> Vec<(Pid, String)> {
        let mark = format!("{MARK}={}", self.mark);
        let has_mark = |pid: &i32| {
            std::fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environ| {
                environ.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
            })
        };
        let name = |pid: i32| {
            std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
        };
        let pids = std::fs::read_dir("/proc").expect("/proc").flatten();
        pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(has_mark)
            .filter_map(|pid| Some((Pid::from_raw(pid)?, name(pid))))
            .collect()
    }

    /// Waits until the process with this name sleeps.
    #[track_caller]
    pub(crate) fn wait_until_asleep(&self, name: &str) {
        let until = Instant::now() + PATIENCE;
        while !self.alive().iter().any(|(pid, other)| other == name && state(*pid) == Some('S')) {
            assert!(Instant::now() < until, "{name} does not wait: {:?}", self.alive());
            std::thread::yield_now();
        }
    }

    /// Asserts that no process is alive now. There is no time to wait.
    pub(crate) fn assert_nothing_is_alive(&self) {
        let alive = self.alive();
        assert!(alive.is_empty(), "still alive: {alive:?}");
    }

    /// Waits on pidfds for every process of the scene to end.
    pub(crate) fn assert_all_end_within(&self, time: Duration) {
        let until = Instant::now() + time;
        loop {
            let alive = self.alive();
            if alive.is_empty() {
                return;
            }
            for (pid, name) in alive {
                assert!(ends_until(pid, until), "{name} (pid {pid:?}) is still alive after {time:?}");
            }
        }
    }

    /// Asserts that no process is alive, nothing is recorded, and the bystander is well.
    pub(crate) fn assert_clean(mut self) {
        self.assert_nothing_is_alive();
        self.assert_nothing_is_recorded();
        self.assert_bystander_is_well();
    }

    /// Waits until no run is recorded. The keeper of a killed host needs a moment.
    pub(crate) fn assert_nothing_is_recorded_within(&self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until && !self.recorded().is_empty() {
            std::thread::yield_now();
        }
        self.assert_nothing_is_recorded();
    }

    pub(crate) fn assert_nothing_is_recorded(&self) {
        let runs = self.recorded();
        assert!(runs.is_empty(), "left behind in the state directory: {runs:?}");
    }

    fn recorded(&self) -> Vec<OsString> {
        let runs: Vec<OsString> = std::fs::read_dir(self.state_dir().join("runs"))
            .map(|runs| runs.flatten().map(|entry| entry.file_name()).collect())
            .unwrap_or_default();
        // A name that begins with a dot is not a run.
        runs.into_iter().filter(|name| !name.as_encoded_bytes().starts_with(b".")).collect()
    }

    pub(crate) fn assert_bystander_is_well(&mut self) {
        assert!(self.bystander.try_wait().expect("the bystander").is_none(), "the bystander was killed");
    }

    /// Returns the output of `snakepit ledger --json`.
    pub(crate) fn ledger(&self) -> serde_json::Value {
        let done = finish(self.verb("ledger").arg("--json"));
        serde_json::from_str(&done.stdout).unwrap_or_else(|error| panic!("{error}: {done:?}"))
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.bystander.kill();
        let _ = self.bystander.wait();
        // A failed test must not leave its processes to the next one.
        for (pid, _) in self.alive() {
            send(pid, Signal::KILL);
        }
    }
}

/// Returns the path of a Python worker of the tests.
pub(crate) fn worker(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/workers").join(file)
}

/// Returns `snakepit call --state-dir … -w worker.py`, without input.
pub(crate) fn call(scene: &Scene) -> Command {
    let mut call = scene.verb("call");
    call.arg("-w").arg(worker("worker.py"));
    call
}

/// A program that has ended, and its output.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) took: Duration,
}

impl Done {
    #[track_caller]
    pub(crate) fn assert_status(&self, code: i32) -> &Self {
        assert_eq!(self.status.code(), Some(code), "signal {:?}: {self:?}", self.status.signal());
        self
    }

    /// Returns the last line of stderr, which is JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        let line = self.stderr.lines().last().unwrap_or_default();
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Runs a program to its end.
#[track_caller]
pub(crate) fn finish(command: &mut Command) -> Done {
    Running::start(command.stdin(Stdio::null())).finish()
}

/// A running program. The test holds its input and output.
pub(crate) struct Running {
    child: Child,
    pub(crate) stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    stderr: JoinHandle<String>,
    began: Instant,
}

impl Running {
    #[track_caller]
    pub(crate) fn start(command: &mut Command) -> Self {
        let began = Instant::now();
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", command.get_program().display()));
        let mut pipe = child.stderr.take().expect("stderr");
        let stderr = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = pipe.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let stdout = BufReader::new(child.stdout.take().expect("stdout"));
        Self { stdin: child.stdin.take(), child, stdout, stderr, began }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        send(self.pid(), signal);
    }

    /// Reads lines until one contains `text`.
    #[track_caller]
    pub(crate) fn expect_line(&mut self, text: &str) -> String {
        let mut seen = String::new();
        loop {
            let mut line = String::new();
            readable_within(self.stdout.get_ref(), &self.stdout, PATIENCE);
            let length = self.stdout.read_line(&mut line).expect("stdout");
            assert!(length > 0, "it ended before it said {text:?}; it said {seen:?}");
            if line.contains(text) {
                return line.trim_end().to_owned();
            }
            seen.push_str(&line);
        }
    }

    /// Writes a line to the input of the program.
    pub(crate) fn say(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().expect("a piped stdin"), "{line}").expect("stdin");
    }

    /// Waits until the program ends.
    #[track_caller]
    pub(crate) fn finish(mut self) -> Done {
        drop(self.stdin.take());
        if !ends_until(self.pid(), Instant::now() + PATIENCE) {
            let _ = self.child.kill();
            panic!("it did not end within {PATIENCE:?}");
        }
        let took = self.began.elapsed();
        let status = self.child.wait().expect("its status");
        let mut stdout = Vec::new();
        readable_within(self.stdout.get_ref(), &self.stdout, PATIENCE);
        self.stdout.read_to_end(&mut stdout).expect("stdout");
        let stderr = self.stderr.join().expect("stderr");
        Done { status, stdout: String::from_utf8_lossy(&stdout).into_owned(), stderr, took }
    }
}

fn readable_within(fd: &ChildStdout, buffered: &BufReader<ChildStdout>, time: Duration) {
    if buffered.buffer().is_empty() {
        let time = Timespec::try_from(time).expect("a short time");
        let ready = poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&time)).expect("poll");
        assert!(ready > 0, "it said nothing within {time:?}");
    }
}

/// Reports whether the process ends before `until`, or has ended already.
pub(crate) fn ends_until(pid: Pid, until: Instant) -> bool {
    let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { return true };
    has_ended_until(&pidfd, until)
}

pub(crate) fn has_ended_until(pidfd: &OwnedFd, until: Instant) -> bool {
    let left = Timespec::try_from(until.saturating_duration_since(Instant::now())).expect("a short time");
    poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&left)).expect("poll") > 0
}

/// Signals a process of the test, through a pidfd as everywhere in this project.
pub(crate) fn send(pid: Pid, signal: Signal) {
    if let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) {
        let _ = pidfd_send_signal(&pidfd, signal);
    }
}

/// Returns the state letter of a process, as in `ps`.
pub(crate) fn state(pid: Pid) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Parses a pid that a script has printed.
#[track_caller]
pub(crate) fn pid(text: &str) -> Pid {
    text.trim().parse().ok().and_then(Pid::from_raw).unwrap_or_else(|| panic!("{text:?} is not a pid"))
}

/// Returns a shell that prints `ready`, lives until it is killed, and executes `traps` on signals.
pub(crate) fn patient_shell(traps: &str) -> [String; 3] {
    ["bash".into(), "-c".into(), format!("{traps}\necho ready\nwhile :; do sleep infinity & wait $!; done")]
}

/// Replaces what differs from run to run: ids, numbers of processes, times, and the directory.
pub(crate) fn redacted(text: &str, scene: &Scene) -> String {
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
    // Columns are as wide as their widest cell, which differs from run to run as well.
    let joined: String = words.collect();
    joined.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n").collect()
}
