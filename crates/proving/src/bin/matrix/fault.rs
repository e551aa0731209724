//! The faults, and what is observed after each.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use snakepit_proving::pidfd::hold_still;
use snakepit_proving::{AllowedSurvivors, Case, Deadline, GridTier, HostProcess};

use crate::cell::CellObservation;

/// A fault that happens to a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MatrixFault {
    KillHost,
    KillKeeper,
    KillBoth,
    WorkerEnd,
    BombKillHost,
    BombWorkerEnd,
    Stop,
}

/// The time after which a living process counts as a survivor, which is far more than a busy machine needs.
const IN_TIME: Duration = Duration::from_secs(15);

/// The number of workers in a run, and of processes per worker: the worker, a child, and a daemon.
const WORKERS: usize = 3;
const FAMILY: usize = 3;

impl MatrixFault {
    pub(crate) const ALL: [Self; 7] = [
        Self::KillHost,
        Self::KillKeeper,
        Self::KillBoth,
        Self::WorkerEnd,
        Self::BombKillHost,
        Self::BombWorkerEnd,
        Self::Stop,
    ];

    /// Returns the name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::KillHost => "kill-host",
            Self::KillKeeper => "kill-keeper",
            Self::KillBoth => "kill-both",
            Self::WorkerEnd => "worker-end",
            Self::BombKillHost => "bomb-kill-host",
            Self::BombWorkerEnd => "bomb-worker-end",
            Self::Stop => "stop",
        }
    }

    /// Returns the text in the table.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::KillHost => "`kill -9` host",
            Self::KillKeeper => "keeper",
            Self::KillBoth => "both",
            Self::WorkerEnd => "worker ends, leaves children",
            Self::BombKillHost => "fork bomb, host killed",
            Self::BombWorkerEnd => "fork bomb, worker ends",
            Self::Stop => "stop",
        }
    }

    /// Reports whether the fault needs a limit on processes.
    pub(crate) fn is_bomb(self) -> bool {
        matches!(self, Self::BombKillHost | Self::BombWorkerEnd)
    }

    /// Returns the number and the kind of the workers in the run.
    fn workers(self, tier: GridTier) -> (usize, &'static str) {
        match self {
            // With an endless bomb, all processes would leave the group and keep forking. Two hundred of them would
            // take the whole machine. This bomb keeps its size, and every other generation stays in the group.
            Self::BombKillHost if tier == GridTier::Group => (1, "bomb"),
            Self::BombWorkerEnd if tier == GridTier::Group => (1, "bomb leave"),
            Self::KillHost | Self::KillKeeper | Self::KillBoth | Self::Stop => (WORKERS, "family"),
            Self::WorkerEnd => (1, "leave"),
            Self::BombKillHost => (1, "breed stay"),
            Self::BombWorkerEnd => (1, "breed leave"),
        }
    }

    /// Inflicts the fault on an open run. Returns the words of the refusal if a worker was refused.
    pub(crate) fn strike(self, case: &mut Case, mut host: HostProcess) -> Result<CellObservation, String> {
        let (count, kind) = self.workers(case.tier);
        let told = match host.ask(&format!("spawn {count} {kind}")) {
            snakepit_proving::HostReply::Ok(told) => told,
            snakepit_proving::HostReply::No(_, words) => return Err(words),
        };
        host.announced(&told);
        case.note(&host);
        if kind == "family" {
            case.must_be_populated(count * FAMILY);
        }
        let began = Instant::now();
        let (took, status) = match self {
            Self::KillHost | Self::BombKillHost => {
                host.process().signal(Signal::KILL);
                let took = settle(case, began);
                (took, format!("host: {}", host.wait()))
            }
            Self::KillBoth => {
                let keeper = host.keeper_process();
                hold_still([host.process(), &keeper]);
                let began = Instant::now();
                keeper.signal(Signal::KILL);
                host.process().signal(Signal::KILL);
                let took = settle(case, began);
                (took, format!("host: {}", host.wait()))
            }
            Self::KillKeeper => kill_keeper(case, &mut host),
            Self::WorkerEnd | Self::BombWorkerEnd => {
                let told = host.ask(&format!("wait {}", host.workers[0].id)).expect("wait");
                assert_eq!(told.get("code").map(String::as_str), Some("5"), "{told:?}");
                (began.elapsed(), "worker: code 5".to_owned())
            }
            Self::Stop => {
                let told = host.ask("stop").expect("stop");
                assert_eq!(told["survivors"], "", "{told:?}");
                (began.elapsed(), format!("stopped {}, killed {}", told["stopped"], told["killed"]))
            }
        };
        let mut seen = CellObservation::of(case, took, status);
        if matches!(self, Self::WorkerEnd | Self::BombWorkerEnd | Self::KillKeeper) {
            host.ask("stop").expect("stop");
        }
        host.say("return");
        let ended = host.wait();
        if !matches!(self, Self::KillHost | Self::KillBoth | Self::BombKillHost) {
            assert!(ended.success(), "the host ended with {ended}");
        }
        case.custody_must_be_gone(Deadline::patient());
        seen.note_record(case);
        Ok(seen)
    }
}

/// Kills the keeper. The workers die with it. The host gets an event and another keeper, and continues.
fn kill_keeper(case: &mut Case, host: &mut HostProcess) -> (Duration, String) {
    // The host's own sweep follows the marker, so processes that left a group may end, too.
    case.who_left_may_end();
    let began = Instant::now();
    host.keeper_process().end();
    let took = settle(case, began);
    host.ask("await-event KeeperLost").expect("the host is told");
    host.ask("await-event KeeperRegained").expect("the host gets another keeper");
    let told = host.ask("spawn 1 stand").expect("a worker below the new keeper");
    let next = host.announced(&told).remove(0);
    let told = host.ask(&format!("stop-one {} 1000", next.id)).expect("its end");
    assert_eq!(told["survivors"], "", "{told:?}");
    (took, "host has another keeper".to_owned())
}

/// Waits until only allowed survivors are left or the time is over.
fn settle(case: &Case, began: Instant) -> Duration {
    let deadline = Deadline::after(IN_TIME);
    if case.cell.allowed == AllowedSurvivors::Nobody {
        case.tag().is_free_before(deadline);
        return began.elapsed();
    }
    debug_assert_eq!(case.tier, GridTier::Group);
    while deadline.left().is_some() && !case.unexpected_survivors().is_empty() {
        snakepit_proving::deadline::let_pass(Duration::from_millis(1));
    }
    began.elapsed()
}
