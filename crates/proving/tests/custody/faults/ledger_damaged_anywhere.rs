//! The reaper reads a ledger that is damaged at any byte or cut at any length. It kills exactly the processes that
//! intact records name, and reports the damage.
//!
//! The ledger is that of a real run. The processes that it names are stand-ins, so a round costs no run. They carry no
//! marker, so only their records identify them.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use snakepit_custody::ReapedRun;
use snakepit_proving::ledger::{self, LedgerIdentity, SLOT};
use snakepit_proving::{Case, Deadline, GridTier, ObservedProcess, rounds};

/// The worker whose end is recorded. Its pid now belongs to a bystander.
const ENDED: u64 = 3;

#[test]
fn rounds_with_every_byte_flipped() {
    let Some(mut damaged) = DamagedRun::set() else { return };
    for byte in places(damaged.ledger.len()) {
        damaged.fill();
        let mut bytes = damaged.named();
        // Every bit has its turn, each time in another byte.
        bytes[byte] ^= 1 << (byte % 8);
        let reaped = damaged.reap(&bytes);
        let (slot, trouble) = (byte / SLOT, reaped.trouble.unwrap_or_default());
        assert!(trouble.contains(&format!("record {slot} is corrupt")), "byte {byte}: {trouble:?}");
        // Intent and record both name a worker, so one of them is enough.
        damaged.must_have_killed(&[1, 2].into(), &format!("byte {byte}"));
    }
    damaged.strike();
}

#[test]
fn rounds_cut_at_every_length() {
    let Some(mut damaged) = DamagedRun::set() else { return };
    for length in places(damaged.ledger.len()) {
        damaged.fill();
        let bytes = damaged.named();
        let reaped = damaged.reap(&bytes[..length]);
        let trouble = reaped.trouble.unwrap_or_default();
        let torn = format!("the last record is torn: {} of {SLOT} bytes", length % SLOT);
        assert_eq!(trouble.contains(&torn), !length.is_multiple_of(SLOT), "length {length}: {trouble:?}");
        assert_eq!(trouble.contains("opening is missing"), length < SLOT, "length {length}: {trouble:?}");
        let named = ledger::named_outside(&bytes[..length], usize::MAX);
        let killed = named.into_iter().filter(|worker| *worker != ENDED).collect();
        damaged.must_have_killed(&killed, &format!("length {length}"));
    }
    damaged.strike();
}

/// Returns the places in a ledger in leaps that spread over all of its records, until the time limit of the test. A
/// quiet machine visits every place.
fn places(whole: usize) -> impl Iterator<Item = usize> {
    const LEAP: usize = 1217;
    assert!(!whole.is_multiple_of(LEAP), "leaps that come by every place");
    let budget = Deadline::after(Duration::from_secs(rounds(45, 1) as u64));
    (0..whole).map(move |step| step * LEAP % whole).enumerate().map_while(move |(done, place)| {
        let go_on = budget.left().is_some() || done < 50;
        if !go_on {
            eprintln!("{done} of {whole} places in the time that a test may take");
        }
        go_on.then_some(place)
    })
}

/// A dead run's ledger, and stand-ins for its workers.
struct DamagedRun {
    case: Case,
    run: PathBuf,
    ledger: Vec<u8>,
    /// The stand-ins of the workers 1 and 2.
    workers: [SubstituteProcess; 2],
    reused_pid: SubstituteProcess,
}

impl DamagedRun {
    /// Returns `None` if nothing can be proven here.
    fn set() -> Option<Self> {
        if snakepit_custody::probe().pidfs.is_err() {
            super::unproven("without pidfs, a record alone is not enough to kill a process");
            return None;
        }
        let cell = super::expected::cell("ledger_damaged_anywhere", GridTier::Shim);
        let mut case = Case::new(&super::programs(), GridTier::Shim, cell);
        let mut host = case.host_with(2, "stand");
        let ended = host.spawn(1, "exit 0 0").remove(0);
        host.ask(&format!("wait {}", ended.id)).expect("wait");
        super::kill_everybody(&mut host);
        let run = case.run_dirs().remove(0);
        let mut bytes = ledger::read(&run);
        case.cleanup().expect("the reaper");
        assert!(case.run_dirs().is_empty());
        let stand_in = || SubstituteProcess::start(&case);
        let (workers, reused_pid) = ([stand_in(), stand_in()], stand_in());
        let stranger = LedgerIdentity { start: 1, pidfs: 1, ..reused_pid.identity };
        ledger::rename_worker(&mut bytes, ENDED, stranger);
        let (heads, of_workers, ends) = (2, 3 * 2, 1);
        assert_eq!(bytes.len(), (heads + of_workers + ends) * SLOT, "opening, keeper, three workers, an end");
        Some(Self { case, run, ledger: bytes, workers, reused_pid })
    }

    /// Replaces the stand-ins that have ended.
    fn fill(&mut self) {
        for worker in &mut self.workers {
            if !worker.process.is_alive() {
                *worker = SubstituteProcess::start(&self.case);
            }
        }
    }

    /// Returns the ledger with the identities of the current stand-ins.
    fn named(&self) -> Vec<u8> {
        let mut bytes = self.ledger.clone();
        for (key, worker) in (1..).zip(&self.workers) {
            ledger::rename_worker(&mut bytes, key, worker.identity);
        }
        bytes
    }

    /// Runs the reaper on the run with this ledger.
    fn reap(&self, bytes: &[u8]) -> ReapedRun {
        fs::create_dir(&self.run).expect("make the run's directory");
        fs::set_permissions(&self.run, fs::Permissions::from_mode(0o700)).expect("chmod");
        fs::write(self.run.join("lock"), "").expect("make the lock");
        ledger::write(&self.run, bytes);
        let mut report = snakepit_custody::cleanup(&self.case.state()).expect("the reaper");
        assert_eq!(report.runs.len(), 1, "{report:#?}");
        let reaped = report.runs.remove(0);
        assert!(reaped.removed && reaped.survivors.is_empty(), "{reaped:#?}");
        let named: BTreeSet<i32> = reaped.killed.iter().map(|killed| killed.pid.as_raw()).collect();
        let dead = self.workers.iter().filter(|worker| !worker.process.is_alive());
        assert_eq!(named, dead.map(|worker| worker.identity.pid).collect(), "whom it says it has killed");
        reaped
    }

    fn must_have_killed(&self, expected: &BTreeSet<u64>, at: &str) {
        let workers = (1..).zip(&self.workers);
        let killed: BTreeSet<u64> =
            workers.filter(|(_, worker)| !worker.process.is_alive()).map(|(key, _)| key).collect();
        assert_eq!(killed, *expected, "{at}");
        assert!(self.reused_pid.process.is_alive(), "{at}: an innocent was killed");
    }

    fn strike(self) {
        let Self { case, workers, reused_pid, .. } = self;
        drop((workers, reused_pid));
        case.finish();
    }
}

/// A process that does nothing and has nothing of any run.
struct SubstituteProcess {
    child: Child,
    process: ObservedProcess,
    identity: LedgerIdentity,
}

impl SubstituteProcess {
    fn start(case: &Case) -> Self {
        let mut command = Command::new(case.hostile());
        let quiet = command.arg("innocent").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = quiet.spawn().expect("start a stand-in");
        let process = ObservedProcess::of(child.id().cast_signed());
        let identity = LedgerIdentity::of(&process);
        Self { child, process, identity }
    }
}

impl Drop for SubstituteProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
