//! A real host in a separate process, which takes orders in lines.
//!
//! Owns the test's end of the conversation. `src/bin/host` is the other end. Each order is a line, and so is each
//! answer: `ok key=value …` or `no status text…`.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::PollFd;
use rustix::process::Signal;

use crate::deadline::READABLE;
use crate::{Deadline, GridTier, ObservedProcess, RefusedSyscall, census, refused_syscall};

/// The time limit of an answer. 10,000 spawns take the longest.
const ANSWER: Duration = Duration::from_mins(4);

/// How a host is started, and how it opens its run.
#[derive(Clone, Debug, Default)]
pub struct OpenAs {
    /// The user to become before the host starts.
    pub user: Option<u32>,
    /// The host's file mode mask.
    pub umask: Option<u32>,
    /// The value of `SNAKEPIT_FAILPOINTS`.
    pub failpoints: Option<String>,
    /// The maximum number of processes of its user.
    pub processes: Option<u64>,
    /// System calls that fail in the host and in all processes that it starts.
    pub refused: Vec<RefusedSyscall>,
    /// More words for the host's `open`, such as `session=caller`.
    pub words: Vec<String>,
    /// A command that runs the host, such as `nsenter …`. It may stay between the host and the test.
    pub through: Vec<String>,
    /// Files of control groups to which the host's process adds itself before it changes its user.
    pub join: Vec<PathBuf>,
}

impl OpenAs {
    /// Adds a word for `open`.
    pub fn word(mut self, word: &str) -> Self {
        self.words.push(word.to_owned());
        self
    }
}

/// An answer of the host.
#[derive(Clone, Debug)]
pub enum HostReply {
    /// The order was carried out, with these results.
    Ok(BTreeMap<String, String>),
    /// The order was refused: the status that a shell would give, and the error in words.
    No(u8, String),
}

impl HostReply {
    /// Parses an answer.
    pub fn parse(line: &str) -> Self {
        let line = line.trim_end();
        if let Some(rest) = line.strip_prefix("no ") {
            let (status, text) = rest.split_once(' ').unwrap_or((rest, ""));
            return Self::No(status.parse().expect("a status"), text.to_owned());
        }
        let rest = line.strip_prefix("ok").unwrap_or_else(|| panic!("the host said {line:?}"));
        let pairs = rest.split_ascii_whitespace().filter_map(|pair| pair.split_once('='));
        Self::Ok(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
    }

    /// Returns the results. A refusal fails the test.
    pub fn expect(self, what: &str) -> BTreeMap<String, String> {
        match self {
            Self::Ok(told) => told,
            Self::No(status, text) => panic!("{what}: refused with {status}: {text}"),
        }
    }

    /// Returns the whole answer as text.
    pub fn words(&self) -> String {
        match self {
            Self::Ok(told) => {
                told.iter().fold(String::new(), |text, (key, value)| text + key + "=" + value + " ")
            }
            Self::No(status, text) => format!("trouble={status} {text}"),
        }
    }

    /// Returns the status and the words of a refusal. A success fails the test.
    pub fn expect_refusal(self, what: &str) -> (u8, String) {
        match self {
            Self::Ok(told) => panic!("{what}: should have been refused, but: {told:?}"),
            Self::No(status, text) => (status, text),
        }
    }
}

/// A worker, as the host announces it.
#[derive(Clone, Debug)]
pub struct WorkerLine {
    /// The id of the worker in the run.
    pub id: String,
    /// The pid of its main process.
    pub pid: i32,
    /// Its process group.
    pub pgid: i32,
    /// The pid of its shim.
    pub shim: i32,
}

impl WorkerLine {
    fn parse(text: &str) -> Self {
        let parts: Vec<&str> = text.split('|').collect();
        let [id, pid, pgid, shim] = parts[..] else { panic!("not a worker: {text:?}") };
        let number = |text: &str| text.parse().expect("a process number");
        Self { id: id.to_owned(), pid: number(pid), pgid: number(pgid), shim: number(shim) }
    }
}

/// A running host program.
#[derive(Debug)]
pub struct HostProcess {
    child: Child,
    process: ObservedProcess,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// The id of the run, once it is open.
    pub run: String,
    /// The pid of the keeper, once the run is open.
    pub keeper: Option<i32>,
    /// The cgroup of the run, if the tier has one.
    pub cgroup: Option<PathBuf>,
    /// All workers that were announced.
    pub workers: Vec<WorkerLine>,
}

impl HostProcess {
    /// Starts the program. The host does not open a run yet, so the test can move it first.
    pub fn start(mut command: Command, options: &OpenAs) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        if !options.join.is_empty() {
            let files: Vec<CString> = options.join.iter().map(|file| c_path(file)).collect();
            let user = options.user;
            // SAFETY: makes only system calls. Everything that they need was prepared before.
            unsafe { command.pre_exec(move || join_then_become(&files, user)) };
        }
        if let Some(user) = options.user {
            if options.join.is_empty() {
                command.uid(user).gid(user);
            }
            // The tests may run in a directory that is closed to others, such as a checkout below a private home, and
            // workers start where their host started.
            if command.get_current_dir().is_none() {
                command.current_dir("/");
            }
        }
        if let Some(mask) = options.umask {
            let set = move || {
                rustix::process::umask(rustix::fs::Mode::from_raw_mode(mask));
                Ok(())
            };
            // SAFETY: umask is one system call and may be made between fork and exec.
            unsafe { command.pre_exec(set) };
        }
        if let Some(processes) = options.processes {
            let limit = rustix::process::Rlimit { current: Some(processes), maximum: Some(processes) };
            let set = move || Ok(rustix::process::setrlimit(rustix::process::Resource::Nproc, limit)?);
            // SAFETY: setrlimit is one system call and may be made between fork and exec.
            unsafe { command.pre_exec(set) };
        }
        if !options.refused.is_empty() {
            let program = refused_syscall::program(&options.refused);
            // SAFETY: makes only system calls. The program was prepared before.
            unsafe { command.pre_exec(move || refused_syscall::apply(&program)) };
        }
        if let Some(failpoints) = &options.failpoints {
            command.env("SNAKEPIT_FAILPOINTS", failpoints);
        }
        let mut child = command.spawn().expect("start the host program");
        let process = ObservedProcess::of(child.id().cast_signed());
        let orders = child.stdin.take().expect("piped");
        let answers = BufReader::new(child.stdout.take().expect("piped"));
        Self {
            child,
            process,
            orders,
            answers,
            run: String::new(),
            keeper: None,
            cgroup: None,
            workers: Vec::new(),
        }
    }

    /// Asks the host to open the run.
    pub fn try_open(&mut self, tier: GridTier, state: &Path, options: &OpenAs) -> HostReply {
        let words = options.words.join(" ");
        let reply = self.ask(&format!("open tier={} state={} {words}", tier.name(), state.display()));
        if let HostReply::Ok(told) = &reply {
            self.run.clone_from(&told["run"]);
            let host = told["host"].parse().ok().and_then(|pid| self.outer(pid));
            if let Some(host) = host.filter(|host| *host != self.process.pid()) {
                self.process = ObservedProcess::of(host);
            }
            self.keeper = told["keeper"].parse().ok().and_then(|pid| self.outer(pid));
            self.cgroup = told.get("cgroup").map(PathBuf::from);
        }
        reply
    }

    /// Translates a pid that the host knows into the test's PID namespace. Returns `None` if no process directly in the
    /// host's namespace has it.
    fn outer(&self, pid: i32) -> Option<i32> {
        census::outer(self.child.id().cast_signed(), pid)
    }

    /// Returns the host's process.
    pub fn process(&self) -> &ObservedProcess {
        &self.process
    }

    /// Returns the keeper's process, as the run knows it now.
    pub fn keeper_process(&self) -> ObservedProcess {
        ObservedProcess::of(self.keeper.expect("a run with a keeper"))
    }

    /// Sends an order and waits for the answer.
    pub fn ask(&mut self, order: &str) -> HostReply {
        self.try_ask(order).unwrap_or_else(|| panic!("the host ended instead of answering {order:?}"))
    }

    /// Like [`HostProcess::ask`], for a host that may exit instead.
    pub fn try_ask(&mut self, order: &str) -> Option<HostReply> {
        self.say(order);
        self.hear().map(|line| HostReply::parse(&line))
    }

    /// Sends an order that gets no answer, or a later one.
    pub fn say(&mut self, order: &str) {
        // If the host has ended, the missing answer shows it.
        let _ = writeln!(self.orders, "{order}").and_then(|()| self.orders.flush());
    }

    /// Returns the next answer, or `None` if the host has ended.
    pub fn hear(&mut self) -> Option<String> {
        if self.answers.buffer().is_empty() {
            let out = self.answers.get_ref();
            let ready = Deadline::after(ANSWER).readable(&mut [PollFd::new(out, READABLE)]);
            assert!(ready, "the host hangs");
        }
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(0) | Err(_) => None,
            Ok(_) => Some(line),
        }
    }

    /// Spawns `count` workers of a hostile kind and waits until each reports that it is ready.
    pub fn spawn(&mut self, count: usize, kind: &str) -> Vec<WorkerLine> {
        let told = self.ask(&format!("spawn {count} {kind}")).expect("spawn");
        self.announced(&told)
    }

    /// Records the workers of an answer.
    pub fn announced(&mut self, told: &BTreeMap<String, String>) -> Vec<WorkerLine> {
        let listed = told.get("workers").map_or("", String::as_str);
        let outer = |pid| self.outer(pid).unwrap_or(0);
        let workers: Vec<_> = listed
            .split(',')
            .filter(|text| !text.is_empty())
            .map(WorkerLine::parse)
            .map(|line| WorkerLine {
                pid: outer(line.pid),
                pgid: outer(line.pgid),
                shim: outer(line.shim),
                ..line
            })
            .collect();
        self.workers.extend(workers.iter().cloned());
        workers
    }

    /// Returns the groups that custody created for the workers.
    pub fn groups(&self) -> Vec<i32> {
        self.workers.iter().map(|worker| worker.pgid).collect()
    }

    /// Returns all shims, including those that the keeper has in reserve.
    pub fn shims(&self) -> Vec<ObservedProcess> {
        let children = census::children(self.keeper.expect("a run with a keeper"));
        let opened = children.iter().map(|child| ObservedProcess::open(child.pid).expect("pidfd_open"));
        opened.flatten().collect()
    }

    /// Kills the host with SIGKILL and waits until it has ended.
    pub fn kill(&mut self) {
        self.process.signal(Signal::KILL);
        self.wait();
    }

    /// Waits until the host has ended.
    pub fn wait(&mut self) -> ExitStatus {
        self.process.must_end("the host");
        let between = self.child.id().cast_signed();
        if between != self.process.pid() && self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            // A process between the host and the test stops when the host is stopped, and would not see the host die.
            // It is our child until it is reaped.
            ObservedProcess::of(between).signal(Signal::CONT);
        }
        self.child.wait().expect("wait for the host")
    }
}

impl Drop for HostProcess {
    fn drop(&mut self) {
        // A failed test leaves its host behind. Then custody's keeper ends the rest.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("a path without NUL")
}

/// Runs between fork and exec. Joins the groups first, because the user may not write there. Allocates nothing.
fn join_then_become(files: &[CString], user: Option<u32>) -> io::Result<()> {
    let check = |result: libc::c_long| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
    for file in files {
        // SAFETY: the string lives through the call.
        let fd = unsafe { libc::open(file.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC) };
        check(fd.into())?;
        // SAFETY: writes one byte from a valid buffer to our own descriptor. 0 means the writing process.
        check(unsafe { libc::write(fd, c"0".as_ptr().cast(), 1) } as libc::c_long)?;
    }
    if let Some(user) = user {
        // SAFETY: integers, and an empty list.
        unsafe {
            check(libc::setgroups(0, std::ptr::null()).into())?;
            check(libc::setgid(user).into())?;
            check(libc::setuid(user).into())?;
        }
    }
    Ok(())
}
