//! A fault at a step of a spawn, and the proof that it happened. A fault that never happens proves nothing.

use std::fs;
use std::path::{Path, PathBuf};

use crate::deadline::recheck;
use crate::{Deadline, OpenAs};

/// A fault at a step of a spawn.
#[derive(Debug)]
pub struct SpawnFault {
    step: String,
    plan: String,
    note: PathBuf,
}

impl SpawnFault {
    /// Plans a fault at this step of the `nth` spawn, or of the `nth` shim for steps that prepare one. The note is
    /// written to `dir`.
    pub fn at(step: &str, nth: u64, action: &str, dir: &Path) -> Self {
        let note = dir.join("fired");
        // Left from the previous round.
        let _ = fs::remove_file(&note);
        let plan = format!("{step}@{nth}={action};note={}", note.display());
        Self { step: step.to_owned(), plan, note }
    }

    /// Returns the options of a host that meets the fault.
    pub fn options(&self) -> OpenAs {
        OpenAs { failpoints: Some(self.plan.clone()), ..OpenAs::default() }
    }

    /// Fails unless the fault has happened or happens in time.
    pub fn must_have_come(&self) {
        recheck(Deadline::patient(), &format!("the fault {}", self.plan), || {
            let note = fs::read_to_string(&self.note).unwrap_or_default();
            note.lines().any(|step| step == self.step).then_some(())
        });
    }
}
