//! The orders that the host accepts, one per line.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use snakepit_custody::{
    Containment, CustodyEvents, CustodyOptions, Exit, ExitStatus, OpenError, Run, Session, SpawnError,
    StopReport, Survivor, WorkerProcess,
};

use crate::spawn::HostileProgram;
use crate::{churn, exits, race, spawn, storm};

/// What to do after an order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AfterOrder {
    /// Read the next order.
    Obey,
    /// Return from `main`, which drops the run.
    Return,
    /// End the main thread and continue in another one.
    MoveToAThread,
}

/// The answer to an order, and what to do next.
#[derive(Debug)]
pub(crate) struct OrderAnswer {
    pub(crate) line: Option<String>,
    pub(crate) next: AfterOrder,
}

/// The reason why an order was not carried out.
#[derive(Debug)]
pub(crate) struct OrderRefusal {
    status: u8,
    words: String,
}

impl OrderRefusal {
    pub(crate) fn new(words: impl Into<String>) -> Self {
        Self { status: 125, words: words.into() }
    }
}

impl From<SpawnError> for OrderRefusal {
    fn from(error: SpawnError) -> Self {
        Self { status: error.shell_status(), words: chain(&error) }
    }
}

impl From<OpenError> for OrderRefusal {
    fn from(error: OpenError) -> Self {
        Self::new(chain(&error))
    }
}

type OrderResult = Result<String, OrderRefusal>;

/// The state of the host: a run and what the host knows of it.
#[derive(Debug)]
pub(crate) struct HostState {
    hostile_program: HostileProgram,
    run: Option<Run>,
    /// Further runs without workers.
    others: Vec<Run>,
    events: Option<CustodyEvents>,
    workers: HashMap<String, WorkerProcess>,
}

impl HostState {
    pub(crate) fn new(hostile_program: HostileProgram) -> Self {
        Self { hostile_program, run: None, others: Vec::new(), events: None, workers: HashMap::new() }
    }

    pub(crate) fn obey(&mut self, line: &str) -> OrderAnswer {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let next = match words[..] {
            ["return"] => return OrderAnswer { line: None, next: AfterOrder::Return },
            ["main-thread-exits"] => AfterOrder::MoveToAThread,
            _ => AfterOrder::Obey,
        };
        let line = match self.carry_out(&words) {
            Ok(told) if told.is_empty() => "ok".to_owned(),
            Ok(told) => format!("ok {told}"),
            Err(OrderRefusal { status, words }) => format!("no {status} {}", words.replace('\n', " ")),
        };
        OrderAnswer { line: Some(line), next }
    }

    fn carry_out(&mut self, words: &[&str]) -> OrderResult {
        match *words {
            ["open", ref rest @ ..] => self.open(&RunSettings::parse(rest)),
            ["open-many", count, ref rest @ ..] => self.open_many(number(count), &RunSettings::parse(rest)),
            ["spawn", count, ref kind @ ..] => self.spawn(number(count), kind),
            ["spawn-in-thread", count, ref kind @ ..] => self.spawn_in_thread(number(count), kind),
            ["spawn-with-everything", ref kind @ ..] => self.spawn_with_everything(kind),
            ["spawn-with-one-at", target, ref kind @ ..] => {
                let worker = spawn::with_descriptor_at(
                    self.run()?,
                    &self.hostile_program,
                    number(target) as i32,
                    kind,
                )?;
                Ok(self.keep(vec![worker]))
            }
            ["exec", program, ref args @ ..] => self.exec(program, args),
            ["wait", id] => Ok(exit_words(self.worker(id)?.wait())),
            ["signal", id, signal] => self.signal(id, number(signal) as i32),
            ["kill", id] => {
                self.worker(id)?.kill().map_err(|error| OrderRefusal::new(chain(&error)))?;
                Ok(String::new())
            }
            ["stop-one", id, millis] => {
                Ok(report_words(&self.worker(id)?.stop(Duration::from_millis(number(millis) as u64))))
            }
            ["stop"] => Ok(report_words(&self.run()?.stop())),
            ["stop", millis] => {
                Ok(report_words(&self.run()?.stop_within(Duration::from_millis(number(millis) as u64))))
            }
            ["cleanup"] => Ok(report_words(&self.run()?.cleanup())),
            ["drop"] => {
                self.run = None;
                self.workers.clear();
                Ok(String::new())
            }
            ["reap", state] => reap(&state_of(state)),
            ["ledger", state] => list(&state_of(state)),
            ["await-event", name] => self.await_event(name),
            ["keeper"] => Ok(format!("keeper={}", self.keeper()?)),
            ["storm", threads, state, log] => {
                storm::start(self.run()?, &self.hostile_program, number(threads), state, log);
                Ok(String::new())
            }
            ["churn", count, threads] => churn::run(self.run()?, number(count), number(threads)),
            ["race", rounds] => race::run(self.run()?, &self.hostile_program, number(rounds)),
            ["main-thread-exits"] => Ok(String::new()),
            ["process-exit"] => std::process::exit(7),
            ["panic"] => panic!("ordered to panic"),
            ["panic-abort"] => exits::panic_without_unwinding(),
            ["eat-memory"] => exits::eat_memory(),
            ["fork-copy"] => Ok(format!("copy={}", exits::fork_a_sleeping_copy())),
            ["fork-and-drop"] => {
                let run = self.run()?.clone();
                let done = exits::fork_a_copy_that(move || drop(run.stop()));
                Ok(format!("status={done}"))
            }
            _ => Err(OrderRefusal::new(format!("no such order: {words:?}"))),
        }
    }

    fn open(&mut self, settings: &RunSettings) -> OrderResult {
        let config = settings.config.clone();
        let run = if settings.in_a_thread {
            std::thread::spawn(move || Run::open(config)).join().expect("the opening thread")?
        } else {
            Run::open(config)?
        };
        self.events = run.events();
        let keeper = run.keeper_pid().ok_or_else(|| OrderRefusal::new("the run has no keeper"))?;
        let cgroup = run.cgroup().map(|path| format!(" cgroup={}", path.display())).unwrap_or_default();
        let told = format!(
            "run={} tier={} keeper={keeper} host={}{cgroup}",
            run.id(),
            run.tier(),
            std::process::id()
        );
        self.run = Some(run);
        Ok(told)
    }

    /// Opens further runs without workers.
    fn open_many(&mut self, count: usize, settings: &RunSettings) -> OrderResult {
        for _ in 0..count {
            self.others.push(Run::open(settings.config.clone())?);
        }
        let ids: Vec<String> = self.others.iter().map(|run| run.id().to_string()).collect();
        Ok(format!("runs={}", ids.join(",")))
    }

    pub(crate) fn run(&self) -> Result<&Run, OrderRefusal> {
        self.run.as_ref().ok_or_else(|| OrderRefusal::new("no run is open"))
    }

    fn keeper(&self) -> Result<i32, OrderRefusal> {
        self.run()?
            .keeper_pid()
            .map(snakepit_custody::Pid::as_raw)
            .ok_or_else(|| OrderRefusal::new("no keeper"))
    }

    fn worker(&self, id: &str) -> Result<&WorkerProcess, OrderRefusal> {
        self.workers.get(id).ok_or_else(|| OrderRefusal::new(format!("no worker {id}")))
    }

    fn keep(&mut self, workers: Vec<WorkerProcess>) -> String {
        let listed: Vec<String> = workers.iter().map(worker_words).collect();
        self.workers.extend(workers.into_iter().map(|worker| (worker.id().to_string(), worker)));
        format!("workers={}", listed.join(","))
    }

    fn spawn(&mut self, count: usize, kind: &[&str]) -> OrderResult {
        let workers = spawn::ready_workers(self.run()?, &self.hostile_program, count, kind)?;
        Ok(self.keep(workers))
    }

    fn spawn_in_thread(&mut self, count: usize, kind: &[&str]) -> OrderResult {
        let (run, hostile_program) = (self.run()?, &self.hostile_program);
        let spawned = std::thread::scope(|scope| {
            scope
                .spawn(|| spawn::ready_workers(run, hostile_program, count, kind))
                .join()
                .expect("the spawning thread")
        })?;
        Ok(self.keep(spawned))
    }

    fn spawn_with_everything(&mut self, kind: &[&str]) -> OrderResult {
        let (worker, handed) = spawn::with_every_descriptor(self.run()?, &self.hostile_program, kind)?;
        Ok(format!("handed={handed} {}", self.keep(vec![worker])))
    }

    fn exec(&mut self, program: &str, args: &[&str]) -> OrderResult {
        let worker = self.run()?.spawn(spawn::quiet(program).args(args))?;
        Ok(self.keep(vec![worker]))
    }

    fn signal(&self, id: &str, signal: i32) -> OrderResult {
        self.worker(id)?.signal(signal).map_err(|error| OrderRefusal::new(chain(&error)))?;
        Ok(String::new())
    }

    fn await_event(&self, name: &str) -> OrderResult {
        let events = self.events.as_ref().ok_or_else(|| OrderRefusal::new("no events"))?;
        loop {
            match events.next_within(Duration::from_secs(15)) {
                Ok(event) => {
                    let shown = format!("{event:?}");
                    if shown.split(' ').next() == Some(name) {
                        return Ok(format!("event={}", shown.replace(' ', "_")));
                    }
                }
                Err(error) => return Err(OrderRefusal::new(format!("{name} never came: {error}"))),
            }
        }
    }
}

#[derive(Debug)]
struct RunSettings {
    config: CustodyOptions,
    in_a_thread: bool,
}

impl RunSettings {
    fn parse(words: &[&str]) -> Self {
        // Only the starts that the tests make may reap.
        let mut config = CustodyOptions::default().reap_interval(Duration::ZERO);
        let mut in_a_thread = false;
        for (key, value) in words.iter().map(|word| word.split_once('=').expect("key=value")) {
            match (key, value) {
                ("state", path) => config.state_dir = Some(PathBuf::from(path)),
                ("tier", "auto") => config.containment = Containment::Auto,
                ("tier", "namespace") => config.containment = Containment::Namespace,
                ("tier", "shim") => config.containment = Containment::Shim,
                ("tier", "group") => config.containment = Containment::Group,
                ("session", "caller") => config.session = Session::Caller,
                ("grace", millis) => config.cleanup_on_stop_timeout_ms = number(millis) as u64,
                ("retries", count) => config.cleanup_max_retries = number(count) as u32,
                ("thread", "yes") => in_a_thread = true,
                _ => panic!("no such setting: {key}={value}"),
            }
        }
        Self { config, in_a_thread }
    }
}

fn number(text: &str) -> usize {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is not a number"))
}

fn state_of(word: &str) -> PathBuf {
    PathBuf::from(word.strip_prefix("state=").expect("state=DIR"))
}

fn worker_words(worker: &WorkerProcess) -> String {
    format!("{}|{}|{}|{}", worker.id(), worker.pid(), worker.pgid(), worker.shim_pid())
}

pub(crate) fn exit_words(exit: Exit) -> String {
    match exit.status {
        ExitStatus::Code(code) => format!("code={code}"),
        ExitStatus::Signal(signal) => format!("signal={signal}"),
        ExitStatus::Lost => "lost=keeper".to_owned(),
        ExitStatus::ShimKilled => "lost=shim".to_owned(),
    }
}

fn report_words(report: &StopReport) -> String {
    let StopReport { stopped, killed, survivors, took, .. } = report;
    let micros = took.as_micros();
    format!("stopped={stopped} killed={killed} micros={micros} survivors={}", survivor_words(survivors))
}

fn survivor_words(survivors: &[Survivor]) -> String {
    let listed: Vec<String> = survivors.iter().map(|who| format!("{}:{}", who.pid, who.state)).collect();
    listed.join(",")
}

fn reap(state: &Path) -> OrderResult {
    let report = snakepit_custody::cleanup(state)?;
    let killed: Vec<String> =
        report.runs.iter().flat_map(|run| &run.killed).map(|killed| killed.pid.to_string()).collect();
    let left: Vec<String> = report.runs.iter().map(|run| survivor_words(&run.survivors)).collect();
    let trouble: Vec<&str> = report.runs.iter().filter_map(|run| run.trouble.as_deref()).collect();
    let removed = report.runs.iter().filter(|run| run.removed).count();
    let let_be: Vec<String> =
        report.runs.iter().flat_map(|run| &run.let_be).map(|let_be| let_be.pid.to_string()).collect();
    let doubts: Vec<String> =
        report.runs.iter().flat_map(|run| &run.let_be).map(ToString::to_string).collect();
    Ok(format!(
        "runs={} clean={} removed={removed} let_be={} doubts={} killed={} survivors={} trouble={}",
        report.runs.len(),
        report.is_clean(),
        let_be.join(","),
        doubts.join(";").replace(char::is_whitespace, "_"),
        killed.join(","),
        left.join(","),
        trouble.join(";").replace(char::is_whitespace, "_"),
    ))
}

fn list(state: &Path) -> OrderResult {
    let runs = snakepit_custody::ledger(state)?;
    let listed: Vec<String> = runs
        .iter()
        .map(|run| {
            let alive = run.processes.iter().filter(|process| process.alive).count();
            format!("{}|{:?}|{}|{alive}", run.run, run.life, run.processes.len())
        })
        .collect();
    Ok(format!("runs={}", listed.join(",")))
}

/// Formats an error with the chain of its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        words = format!("{words}: {cause}");
        source = cause.source();
    }
    words
}
