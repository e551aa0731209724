//! A fault asked for at a step of a spawn, and the proof that it came: one that never comes proves nothing.

use std::fs;
use std::path::{Path, PathBuf};

use crate::deadline::recheck;
use crate::{Deadline, OpenAs};

/// A fault at a step of a spawn.
#[derive(Debug)]
pub struct Fault {
    step: String,
    plan: String,
    note: PathBuf,
}

impl Fault {
    /// At this step of the `nth` spawn, or of the `nth` shim for steps that prepare one. `dir` is for the note.
    pub fn at(step: &str, nth: u64, action: &str, dir: &Path) -> Self {
        let note = dir.join("fired");
        // Of the round before.
        let _ = fs::remove_file(&note);
        let plan = format!("{step}@{nth}={action};note={}", note.display());
        Self { step: step.to_owned(), plan, note }
    }

    /// How a host is started that meets it.
    pub fn options(&self) -> OpenAs {
        OpenAs { failpoints: Some(self.plan.clone()), ..OpenAs::default() }
    }

    /// Fails unless it has come, or comes.
    pub fn must_have_come(&self) {
        recheck(Deadline::patient(), &format!("the fault {}", self.plan), || {
            let note = fs::read_to_string(&self.note).unwrap_or_default();
            note.lines().any(|step| step == self.step).then_some(())
        });
    }
}
