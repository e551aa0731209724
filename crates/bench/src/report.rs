//! A table of rows and verdicts, and the two formats in which it is printed.

use std::fmt::Write as _;

use crate::{SampleSet, Unit, machine};

/// The target of a row. `smoke` bounds hold even on a busy machine.
#[derive(Clone, Copy, Debug)]
pub enum RowTarget {
    /// No target: the row is only reported.
    None,
    /// The ratio of our number to the floor.
    RatioAtMost {
        /// The promised bound.
        full: f64,
        /// The bound that holds even on a busy machine.
        smoke: f64,
    },
    /// The ratio of our number to the floor, where more is better.
    RatioAtLeast {
        /// The promised bound.
        full: f64,
        /// The bound that holds even on a busy machine.
        smoke: f64,
    },
    /// Our number alone.
    AtLeast {
        /// The promised bound.
        full: f64,
        /// The bound that holds even on a busy machine.
        smoke: f64,
    },
    /// Our number alone, for times.
    SecondsAtMost {
        /// The promised bound.
        full: f64,
        /// The bound that holds even on a busy machine.
        smoke: f64,
    },
    /// Our number alone, for memory. It does not depend on the load of the machine.
    AtMost(f64),
    /// Our number minus the floor, also for memory.
    AboveAtMost(f64),
}

/// One side of a row: our numbers, or those that they are compared with.
#[derive(Clone, Debug)]
pub enum Side {
    /// The samples, and further numbers from the same rounds.
    Measured {
        /// The samples that the ratio is computed from.
        samples: SampleSet,
        /// Further numbers, as text.
        aside: Vec<String>,
    },
    /// The reason why nothing was measured.
    Absent(String),
}

/// One row of the table.
#[derive(Clone, Debug)]
pub struct ReportRow {
    /// What is measured.
    pub what: String,
    /// The unit of both sides.
    pub unit: Unit,
    /// Our numbers.
    pub ours: Side,
    /// The numbers that ours are compared with.
    pub beside: Option<Comparand>,
    /// The target of the row.
    pub target: RowTarget,
}

/// A floor or a peer, measured by turns with our number.
#[derive(Clone, Debug)]
pub struct Comparand {
    /// The name of the floor or peer.
    pub name: String,
    /// The numbers of the floor or peer.
    pub side: Side,
}

/// The text around the table when it is written to a file.
#[derive(Clone, Copy, Debug)]
pub struct ReportPage {
    /// The heading and the first paragraph.
    pub opening: &'static str,
    /// The heading of the column beside ours.
    pub beside: &'static str,
    /// How the rows are measured.
    pub method: &'static str,
}

/// The table of a run, to which the parts add their rows.
#[derive(Debug)]
pub struct BenchReport {
    page: ReportPage,
    /// The load of the machine before the first measurement.
    load: String,
    rows: Vec<ReportRow>,
    notes: Vec<String>,
}

impl From<SampleSet> for Side {
    fn from(samples: SampleSet) -> Self {
        Self::Measured { samples, aside: Vec::new() }
    }
}

impl Side {
    fn samples(&self) -> Option<&SampleSet> {
        match self {
            Self::Measured { samples, .. } => Some(samples),
            Self::Absent(_) => None,
        }
    }

    fn show(&self, unit: Unit) -> String {
        match self {
            Self::Measured { samples, aside } => {
                let [low, high] = [samples.quantile(0.1), samples.quantile(0.9)].map(|it| unit.show(it));
                let main = format!("{} ({low} – {high})", unit.show(samples.median()));
                std::iter::once(main).chain(aside.iter().cloned()).collect::<Vec<_>>().join(", ")
            }
            Self::Absent(why) => why.clone(),
        }
    }
}

impl ReportRow {
    fn pair(&self) -> Option<(f64, f64)> {
        let beside = self.beside.as_ref()?.side.samples()?;
        Some((self.ours.samples()?.median(), beside.median()))
    }

    fn ratio(&self) -> Option<f64> {
        self.pair().map(|(ours, theirs)| ours / theirs)
    }

    fn keeps(&self, smoke: bool) -> Option<bool> {
        let pick = |full: f64, easy: f64| if smoke { easy } else { full };
        match self.target {
            RowTarget::None => None,
            RowTarget::RatioAtMost { full, smoke } => self.ratio().map(|ratio| ratio <= pick(full, smoke)),
            RowTarget::RatioAtLeast { full, smoke } => self.ratio().map(|ratio| ratio >= pick(full, smoke)),
            RowTarget::AtLeast { full, smoke } => {
                self.ours.samples().map(|it| it.median() >= pick(full, smoke))
            }
            RowTarget::SecondsAtMost { full, smoke } => {
                self.ours.samples().map(|it| it.median() <= pick(full, smoke))
            }
            RowTarget::AtMost(most) => self.ours.samples().map(|it| it.quantile(1.0) <= most),
            RowTarget::AboveAtMost(most) => self.pair().map(|(ours, theirs)| ours - theirs <= most),
        }
    }

    fn cells(&self) -> [String; 7] {
        let target = match self.target {
            RowTarget::None => "reported".to_owned(),
            RowTarget::RatioAtMost { full, .. } => format!("≤ {full}×"),
            RowTarget::RatioAtLeast { full, .. } => format!("≥ {full}×"),
            RowTarget::AtLeast { full, .. } => format!("≥ {}", self.unit.show(full)),
            RowTarget::SecondsAtMost { full, .. } => format!("≤ {}", self.unit.show(full)),
            RowTarget::AtMost(most) => format!("≤ {}", self.unit.show(most)),
            RowTarget::AboveAtMost(most) => format!("≤ {} more", self.unit.show(most)),
        };
        let verdict = match self.keeps(false) {
            None => "–",
            Some(true) => "pass",
            Some(false) => "MISS",
        };
        let dash = || "–".to_owned();
        [
            self.what.clone(),
            self.ours.show(self.unit),
            self.beside.as_ref().map_or_else(dash, |beside| beside.side.show(self.unit)),
            self.beside.as_ref().map_or_else(dash, |beside| beside.name.clone()),
            self.ratio().map_or_else(dash, |ratio| format!("{ratio:.2}×")),
            target,
            self.ours.samples().map_or_else(dash, |it| format!("{verdict} (n={})", it.len())),
        ]
    }
}

impl BenchReport {
    /// Starts an empty table and records the load of the machine.
    pub fn begin(page: ReportPage) -> Self {
        Self { page, load: machine::load(), rows: Vec::new(), notes: Vec::new() }
    }

    /// Adds a row.
    pub fn add(&mut self, row: ReportRow) {
        let beside = row.beside.as_ref().map_or("", |beside| &beside.name);
        eprintln!("  {} | {beside}", row.what);
        self.rows.push(row);
    }

    /// Adds a sentence below the table.
    pub fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        eprintln!("  note: {note}");
        self.notes.push(note);
    }

    /// Returns the rows that miss their target.
    pub fn missed(&self) -> Vec<String> {
        self.failing(false)
    }

    /// Returns the rows that miss even the bound that holds on a busy machine.
    pub fn broken(&self) -> Vec<String> {
        self.failing(true)
    }

    fn failing(&self, smoke: bool) -> Vec<String> {
        self.rows
            .iter()
            .filter(|row| row.keeps(smoke) == Some(false))
            .map(|row| row.cells().join(" | "))
            .collect()
    }

    fn head(&self) -> [String; 7] {
        let beside = self.page.beside;
        let which = format!("{beside} is");
        ["what", "ours: median (p10 – p90)", beside, &which, "ratio", "target", "verdict"].map(str::to_owned)
    }

    /// Returns the table for a terminal.
    pub fn text(&self) -> String {
        let cells: Vec<[String; 7]> =
            std::iter::once(self.head()).chain(self.rows.iter().map(ReportRow::cells)).collect();
        let widths: [usize; 7] =
            std::array::from_fn(|at| cells.iter().map(|row| row[at].chars().count()).max().unwrap_or(0));
        let mut text = String::new();
        for row in &cells {
            let line: Vec<String> =
                row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            let _ = writeln!(text, "{}", line.join("  ").trim_end());
        }
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        text
    }

    /// Returns the page for `docs/bench/`.
    pub fn markdown(&self) -> String {
        let mut text = format!("{}\n\n", self.page.opening);
        let _ = writeln!(
            text,
            "Machine: {}; load {} when the run began, {} when it ended.\n",
            machine::describe(),
            self.load,
            machine::load()
        );
        let head = self.head();
        let _ = writeln!(text, "| {} |\n|{}", head.join(" | "), "---|".repeat(head.len()));
        for row in &self.rows {
            let _ = writeln!(text, "| {} |", row.cells().join(" | "));
        }
        let _ = writeln!(text, "\n## How it is measured\n\n{}", self.page.method.trim_end());
        for note in &self.notes {
            let _ = writeln!(text, "- {note}");
        }
        text
    }
}
