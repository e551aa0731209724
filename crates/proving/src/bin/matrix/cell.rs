//! One cell: a fault in a tier in a place, and its outcome.

use std::fmt;
use std::fs::OpenOptions;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use snakepit_proving::unit::Unit;
use snakepit_proving::{Case, GridTier, HostReply, Programs};

use crate::expected;
use crate::fault::MatrixFault;
use crate::leftovers;
use crate::place::{HostPlace, PlaceSetup};

/// What was observed after a fault.
#[derive(Clone, Debug)]
pub(crate) struct CellObservation {
    /// The number of processes that should not be alive.
    pub(crate) survivors: usize,
    /// The number of living processes that the tier does not hold.
    pub(crate) left: usize,
    /// What was done to bystanders.
    pub(crate) harm: Vec<String>,
    pub(crate) took: Duration,
    pub(crate) status: String,
    /// Whether the tier had a cgroup.
    pub(crate) cgroup: bool,
}

impl CellObservation {
    /// Counts the processes that are alive now.
    pub(crate) fn of(case: &Case, took: Duration, status: String) -> Self {
        // A process that reads another one's maps while that one ends holds the tag a little longer. The list does not
        // show such processes.
        let (survivors, all) = if case.tag().is_free() {
            (0, 0)
        } else {
            (case.unexpected_survivors().len(), case.tagged_processes().len())
        };
        let cgroup = !case.cgroups().is_empty();
        Self { survivors, left: all.saturating_sub(survivors), harm: case.harm(), took, status, cgroup }
    }

    /// Adds whether the run's record is gone.
    pub(crate) fn note_record(&mut self, case: &Case) {
        let left = case.run_dirs().len();
        self.status += if left == 0 { ", record cleared" } else { ", record waits for the next start" };
    }
}

/// The outcome of a cell.
#[derive(Clone, Debug)]
pub(crate) enum CellOutcome {
    /// The run opened.
    Held(CellObservation),
    /// The run was refused with this sentence.
    Refused(String),
    /// This machine cannot create the place.
    Unproven(String),
    /// Any other outcome, with the message of the assertion that failed.
    Broken(String),
}

/// The outcomes of a tier in a place, one per fault.
pub(crate) struct MatrixRow {
    pub(crate) place: HostPlace,
    pub(crate) tier: GridTier,
    pub(crate) cells: Vec<(MatrixFault, CellOutcome)>,
}

impl MatrixRow {
    /// Returns the cells that differ from the expectations, in words.
    pub(crate) fn differing(&self) -> Vec<String> {
        let tell = |(fault, outcome): &(MatrixFault, CellOutcome)| {
            let why = expected::differs(self.place, self.tier, *fault, outcome)?;
            let (place, tier, fault) = (self.place.name(), self.tier.name(), fault.name());
            Some(format!("{why}: matrix --place {place} --tier {tier} --fault {fault}"))
        };
        self.cells.iter().filter_map(tell).collect()
    }
}

impl fmt::Display for CellOutcome {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held(CellObservation { survivors, left, harm, took, status, cgroup }) => {
                let time = Unit::Seconds.show(took.as_secs_f64());
                write!(to, "survivors {survivors}, ")?;
                if *left > 0 {
                    write!(to, "left the group {left}, ")?;
                }
                let behind = if *cgroup { ", cgroup" } else { "" };
                write!(to, "bystanders harmed {}, {time}; {status}{behind}", harm.len())
            }
            Self::Refused(words) => write!(to, "refused: {words}"),
            Self::Unproven(words) => write!(to, "NOT PROVEN HERE: {words}"),
            Self::Broken(words) => write!(to, "BROKEN: {words}"),
        }
    }
}

/// The message of the last panic.
static PANIC: Mutex<String> = Mutex::new(String::new());

/// Suppresses the output of panics, by which the harness fails. They become cells instead.
pub(crate) fn catch_quietly() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let words = info.payload_as_str().unwrap_or("a panic");
        *PANIC.lock().unwrap_or_else(PoisonError::into_inner) = format!("{words} ({place})");
    }));
}

/// Measures one cell.
pub(crate) fn run(programs: &Programs, place: HostPlace, tier: GridTier, fault: MatrixFault) -> CellOutcome {
    let attempt = || attempt(programs, place, tier, fault);
    catch_unwind(AssertUnwindSafe(attempt)).unwrap_or_else(|_| {
        let words = PANIC.lock().unwrap_or_else(PoisonError::into_inner);
        CellOutcome::Broken(words.split_whitespace().collect::<Vec<_>>().join(" "))
    })
}

fn attempt(programs: &Programs, place: HostPlace, tier: GridTier, fault: MatrixFault) -> CellOutcome {
    let mut scene = match PlaceSetup::prepare(place, fault, &programs.hostile) {
        Ok(scene) => scene,
        Err(why) => return CellOutcome::Unproven(why),
    };
    let cell = expected::survivors(fault, tier);
    let mut case = Case::with(programs, tier, cell, scene.options.clone());
    case.words().iter().for_each(|word| note(word));
    scene.take_in(&mut case);
    scene.groups().iter().for_each(|group| note(&group.display().to_string()));
    let mut host = case.bare_host();
    let outcome = match case.try_open(&mut host) {
        HostReply::Ok(_) => {
            case.words().iter().for_each(|word| note(word));
            fault.strike(&mut case, host)
        }
        HostReply::No(_, words) => {
            host.say("return");
            host.wait();
            Err(words)
        }
    };
    let outcome = match outcome {
        Ok(seen) => CellOutcome::Held(seen),
        Err(words) => CellOutcome::Refused(words.replace(&case.state().display().to_string(), "STATE")),
    };
    if let CellOutcome::Held(CellObservation { survivors: 1.., .. }) = outcome {
        // Dropping the case ends the survivors. The cell describes them.
        return outcome;
    }
    case.finish();
    outcome
}

/// Records a name that belongs to this program, for the proof that nothing is left.
fn note(word: &str) {
    let list = std::env::var_os(leftovers::LIST).expect("the list of names");
    let written = OpenOptions::new().append(true).create(true).open(list);
    written.and_then(|mut file| writeln!(file, "{word}")).expect("note a name");
}
