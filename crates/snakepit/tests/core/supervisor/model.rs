//! Random sequences of events for a pool, checked against a model once the pool is idle again.
//!
//! A sequence depends only on its seed, but its timing differs from run to run. A failure prints the seed and the
//! steps. `SNAKEPIT_SEED=…` starts with that seed.
//!
//! About `crates/core/src/supervisor/main_loop.rs`, `crates/core/src/supervisor/removal.rs` and
//! `crates/core/src/supervisor/worker_end.rs`.

use std::collections::{BTreeSet, HashSet};
use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use snakepit::policy::Restarts;
use snakepit::pool::{CancelGrace, PoolHealth, ReloadError, Reloaded, WorkerDuty};
use snakepit::{CallError, Pool, PoolOptions, args};
use tokio::task::JoinHandle;

use crate::support::{Dice, Pit, SOON, lines, number_from_env, rounds, signal, soon, worker};

/// The highest number of workers of a pool.
const MOST: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A call that takes so many milliseconds.
    Call(usize),
    /// A call whose caller goes away after so many tenths of a millisecond.
    DropCall(usize),
    /// Kills the process with this index, modulo their number, if there is any. Processes that are starting are
    /// included.
    Kill(usize),
    /// The same, among the workers that have a call.
    KillBusy(usize),
    Stop(usize),
    Cont,
    Scale(usize),
    Reload,
    RecycleOne(usize),
    RecycleAll,
    /// A pause, in tenths of a millisecond.
    Pause(usize),
}

impl Step {
    fn draw(dice: &mut Dice) -> Self {
        match dice.below(100) {
            0..25 => Self::Call(dice.below(4)),
            25..37 => Self::Call(20 + dice.below(40)),
            37..47 => Self::DropCall(dice.below(200)),
            47..51 => Self::Kill(dice.below(8)),
            51..57 => Self::KillBusy(dice.below(8)),
            57..62 => Self::Stop(dice.below(8)),
            62..66 => Self::Cont,
            66..74 => Self::Scale(dice.below(MOST + 1)),
            74..79 => Self::Reload,
            79..84 => Self::RecycleOne(dice.below(MOST)),
            84..87 => Self::RecycleAll,
            _ => Self::Pause(dice.below(300)),
        }
    }
}

/// The kind of the workers of a pool.
#[derive(Clone, Copy)]
enum Kind {
    /// `quick.py`, which starts fast.
    Quick,
    /// `hostile.py`, with the SDK.
    Sdk,
}

impl Kind {
    fn pool(self, marks: &Path) -> PoolOptions {
        let pool = match self {
            Self::Quick => {
                let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/workers/quick.py");
                // Nothing but the interpreter itself.
                let words = ["python3".into(), "-S".into(), "-E".into(), file.into_os_string(), marks.into()];
                snakepit::command(words).name("quick").quarantine(None)
            }
            Self::Sdk => worker("hostile.py").name("sdk").quarantine(None),
        };
        let restarts = Restarts::default()
            .failures(1_000_000)
            .first_pause(Duration::from_millis(1))
            .longest_pause(Duration::from_millis(5));
        // Only a worker that is stopped permanently fails to give up a call in this time, and none is.
        let grace = CancelGrace::default().ask(Duration::from_secs(5)).raise(SOON);
        pool.workers(2).restarts(restarts).cancel_grace(grace).queue_timeout(SOON)
    }

    async fn call(self, pool: Pool, marks: String, key: String, millis: usize) -> Result<String, CallError> {
        match self {
            Self::Quick => pool.call("work", (key, millis)).await,
            Self::Sdk => {
                let seconds = Duration::from_millis(millis as u64).as_secs_f64();
                pool.call("mark_and_sleep", args! { path: marks, key: key, seconds: seconds }).await
            }
        }
    }
}

/// What has happened in a sequence, and what must follow.
#[derive(Default)]
struct Model {
    target: usize,
    kills: usize,
    stopped: Vec<u32>,
    calls: Vec<(String, JoinHandle<Result<String, CallError>>)>,
    reloads: Vec<JoinHandle<Result<Reloaded, ReloadError>>>,
}

struct Bench {
    kind: Kind,
    pit: Pit,
    pool: Pool,
    marks: String,
    answered: HashSet<String>,
    deaths: usize,
    kills: usize,
}

impl Bench {
    async fn start(kind: Kind, home: &Path) -> Self {
        let marks = home.join("marks");
        let pit = Pit::start(kind.pool(&marks)).await;
        let pool = pit.pools()[0].clone();
        let marks = marks.to_string_lossy().into_owned();
        Self { kind, pit, pool, marks, answered: HashSet::new(), deaths: 0, kills: 0 }
    }

    /// Returns all processes: those that serve, start and leave.
    fn processes(&self) -> Vec<u32> {
        let mut pids: Vec<_> =
            self.run().workers().iter().map(|worker| worker.pid().as_raw() as u32).collect();
        pids.sort_unstable();
        pids
    }

    fn run(&self) -> &snakepit::custody::Run {
        self.pit.run().expect("a run")
    }

    fn call(&self, key: &str, millis: usize) -> JoinHandle<Result<String, CallError>> {
        tokio::spawn(self.kind.call(self.pool.clone(), self.marks.clone(), key.to_owned(), millis))
    }

    async fn step(&self, name: &str, number: usize, step: Step, model: &mut Model) {
        let key = format!("{name}.{number}");
        let chosen = |index: usize| {
            let pids = self.processes();
            (!pids.is_empty()).then(|| pids[index % pids.len()])
        };
        match step {
            Step::Call(millis) => model.calls.push((key.clone(), self.call(&key, millis))),
            Step::DropCall(tenths) => {
                let call = self.kind.call(self.pool.clone(), self.marks.clone(), key, 50);
                let patience = Duration::from_micros(tenths as u64 * 100);
                drop(tokio::spawn(async move { drop(tokio::time::timeout(patience, call).await) }));
            }
            Step::Kill(index) => {
                if let Some(pid) = chosen(index) {
                    signal(pid, Signal::KILL);
                    model.kills += 1;
                }
            }
            Step::KillBusy(index) => {
                let mut busy = self.pool.workers();
                busy.retain(|worker| worker.in_flight > 0);
                if let Some(pid) = busy.get(index % busy.len().max(1)).and_then(|worker| worker.pid) {
                    signal(pid.as_raw() as u32, Signal::KILL);
                    model.kills += 1;
                }
            }
            Step::Stop(index) => {
                if let Some(pid) = chosen(index) {
                    signal(pid, Signal::STOP);
                    model.stopped.push(pid);
                }
            }
            Step::Cont => model.go_on(),
            Step::Scale(workers) => {
                self.pool.scale(workers);
                model.target = workers;
            }
            Step::Reload => {
                let pool = self.pool.clone();
                model.reloads.push(tokio::spawn(async move { pool.reload().await }));
            }
            Step::RecycleOne(index) => {
                let workers = self.pool.workers();
                if let Some(worker) = workers.get(index % workers.len().max(1)) {
                    self.pool.recycle(&worker.id).await;
                }
            }
            Step::RecycleAll => drop(self.pool.recycle_all().await),
            Step::Pause(tenths) => tokio::time::sleep(Duration::from_micros(tenths as u64 * 100)).await,
        }
    }

    /// Runs one sequence, from its seed to the quiet after it.
    async fn sequence(&mut self, name: &str, seed: u64) {
        let mut dice = Dice::new(seed);
        // In most cases a worker is busy when the rest begins.
        let mut steps: Vec<Step> = (0..dice.below(4)).map(|_| Step::Call(10 + dice.below(40))).collect();
        steps.push(Step::Pause(dice.below(100)));
        steps.extend((0..3 + dice.below(8)).map(|_| Step::draw(&mut dice)));
        let mut model = Model { target: self.pool.workers().len(), ..Model::default() };
        let told = |what: &str| format!("{what}; SNAKEPIT_SEED={seed}, {name}: {steps:?}");
        for (number, step) in steps.iter().enumerate() {
            let done = tokio::time::timeout(SOON, self.step(name, number, *step, &mut model)).await;
            assert!(done.is_ok(), "{}", told(&format!("step {number} hangs")));
        }
        model.go_on();
        model.target = model.target.max(1 + dice.below(MOST));
        self.pool.scale(model.target);
        let mut deaths = 0;
        for (key, call) in std::mem::take(&mut model.calls) {
            let Ok(outcome) = tokio::time::timeout(SOON, call).await else {
                panic!("{}", told(&format!("{key} has no answer: {}", self.describe().await)));
            };
            match outcome {
                Ok(Ok(answer)) => {
                    assert_eq!(answer, key, "{}", told("another one's answer"));
                    assert!(self.answered.insert(key), "{}", told("an answer came twice"));
                }
                Ok(Err(CallError::WorkerDied { .. })) => deaths += 1,
                // A pool that should have no workers does not let its callers wait.
                Ok(Err(CallError::NoWorkers { .. }))
                    if steps.iter().any(|it| matches!(it, Step::Scale(0))) => {}
                other => panic!("{}", told(&format!("{key}: {other:?}"))),
            }
        }
        assert!(deaths <= model.kills, "{}", told(&format!("{deaths} calls died of {} kills", model.kills)));
        for reload in std::mem::take(&mut model.reloads) {
            let Ok(outcome) = tokio::time::timeout(SOON, reload).await else {
                panic!("{}", told(&format!("a reload hangs: {}", self.describe().await)));
            };
            match outcome {
                Ok(Ok(_) | Err(ReloadError::UnderWay { .. })) => {}
                Ok(Err(ReloadError::Aborted { .. })) if model.kills > 0 => {}
                other => panic!("{}", told(&format!("the reload: {other:?}"))),
            }
        }
        let deadline = Instant::now() + SOON;
        while let Err(wrong) = self.check(&model).await {
            assert!(Instant::now() < deadline, "{}", told(&format!("{wrong}: {}", self.describe().await)));
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let key = format!("{name}.fresh");
        let fresh = soon("a fresh call", self.call(&key, 0)).await.expect("no panic");
        assert!(fresh.is_ok(), "{}", told(&format!("a fresh call: {fresh:?}")));
        self.answered.insert(key);
        self.deaths += deaths;
        self.kills += model.kills;
    }

    /// Checks whether the pool's records agree with each other and with the model.
    async fn check(&self, model: &Model) -> Result<(), &'static str> {
        let workers = self.pool.workers();
        if workers.len() != model.target {
            return Err("the capacity is not what it should be");
        }
        if self.pool.queued() + self.pool.in_flight() != 0 {
            return Err("calls are left");
        }
        let stats = soon("stats", self.pool.status()).await;
        if stats.target != model.target || stats.starting != 0 || stats.in_flight + stats.queued != 0 {
            return Err("the supervisor counts other workers");
        }
        if !matches!(stats.health, PoolHealth::Ready(_))
            || stats.workers.iter().any(|worker| worker.duty != WorkerDuty::Serving)
        {
            return Err("not all are at rest");
        }
        let serving: BTreeSet<_> = workers.iter().map(|worker| worker.id.clone()).collect();
        let on_the_roll: BTreeSet<_> = stats.workers.iter().map(|worker| worker.info.id.clone()).collect();
        if on_the_roll != serving || stats.workers.len() != serving.len() {
            return Err("scheduler and supervisor know different workers");
        }
        let kept: BTreeSet<_> = self.run().workers().iter().map(|worker| worker.id().to_string()).collect();
        if kept != serving {
            return Err("custody keeps others than those that serve");
        }
        let slots: BTreeSet<_> = workers.iter().map(|worker| worker.slot).collect();
        if slots.len() == serving.len() { Ok(()) } else { Err("two workers have one slot") }
    }

    async fn describe(&self) -> String {
        let mut text = String::new();
        let stats = tokio::time::timeout(SOON, self.pool.status()).await;
        let _ = write!(text, "{stats:?}; custody has ");
        for worker in self.run().workers() {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", worker.pid())).unwrap_or_default();
            let state = stat.rsplit(')').next().unwrap_or_default().chars().take(2).collect::<String>();
            let _ = write!(text, "{} ({}{state}) ", worker.id(), worker.pid());
        }
        text
    }

    /// Checks that nothing was run twice, and that everything that was answered was run.
    async fn end(self) -> (usize, usize) {
        let all = lines(&self.marks);
        let marks: HashSet<&str> = all.iter().map(String::as_str).collect();
        assert_eq!(marks.len(), all.len(), "a call was run twice");
        let lost: Vec<_> = self.answered.iter().filter(|key| !marks.contains(key.as_str())).collect();
        assert!(lost.is_empty(), "answered and never run: {lost:?}");
        soon("the end", self.pit.end()).await;
        (self.kills, self.deaths)
    }
}

impl Model {
    fn go_on(&mut self) {
        for pid in self.stopped.drain(..) {
            signal(pid, Signal::CONT);
        }
    }
}

/// Runs so many sequences on so many engines.
async fn sequences(kind: Kind, all: usize, engines: usize) {
    let seed = number_from_env("SNAKEPIT_SEED").unwrap_or(20_261_115);
    let began = Instant::now();
    let benches: Vec<_> = (0..engines)
        .map(|engine| {
            tokio::spawn(async move {
                let home = tempfile::tempdir().expect("a directory");
                let mut bench = Bench::start(kind, home.path()).await;
                for number in (engine..all).step_by(engines) {
                    bench.sequence(&format!("{number}"), seed.wrapping_add(number as u64)).await;
                }
                bench.end().await
            })
        })
        .collect();
    let (mut kills, mut deaths) = (0, 0);
    for bench in benches {
        let (more_kills, more_deaths) = bench.await.expect("the model holds");
        kills += more_kills;
        deaths += more_deaths;
    }
    println!("{all} sequences in {:?}: {kills} kills, {deaths} calls died of them", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_random_sequences_lose_no_worker() {
    sequences(Kind::Quick, rounds(1000), 8).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn random_sequences_of_workers_with_the_sdk_lose_no_call() {
    sequences(Kind::Sdk, rounds(80), 3).await;
}
