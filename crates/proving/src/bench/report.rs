//! The one table: rows, verdicts, and the two ways to print them.

use std::fmt::Write as _;

use super::machine;
use super::sample::Samples;

/// What the numbers of a row are.
#[derive(Clone, Copy, Debug)]
pub enum Unit {
    /// A time.
    Seconds,
    /// A rate.
    PerSecond,
    /// Memory.
    Mebibytes,
}

/// What a row must reach. `smoke` bounds are those that even a busy machine keeps.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// Reported only.
    None,
    /// Ours divided by the floor.
    RatioAtMost {
        /// What is promised.
        full: f64,
        /// What a busy machine keeps.
        smoke: f64,
    },
    /// Ours divided by the floor, where more is better.
    RatioAtLeast {
        /// What is promised.
        full: f64,
        /// What a busy machine keeps.
        smoke: f64,
    },
    /// Ours by itself.
    AtLeast {
        /// What is promised.
        full: f64,
        /// What a busy machine keeps.
        smoke: f64,
    },
    /// Ours by itself; memory does not depend on how busy the machine is.
    AtMost(f64),
    /// Ours less the floor; memory again.
    AboveAtMost(f64),
}

/// The numbers of one side of a row.
#[derive(Clone, Debug)]
pub enum Side {
    /// What was measured, and what else is worth saying about the same rounds.
    Measured {
        /// What the ratio is made of.
        samples: Samples,
        /// More numbers, as text.
        aside: Vec<String>,
    },
    /// Not measured, and why.
    Absent(String),
}

/// One line of the table.
#[derive(Clone, Debug)]
pub struct Row {
    /// What is measured.
    pub what: String,
    /// In which unit.
    pub unit: Unit,
    /// Our numbers.
    pub ours: Side,
    /// Theirs.
    pub beside: Option<Beside>,
    /// What must be reached.
    pub target: Target,
}

/// What ours is compared with, measured by turns with it.
#[derive(Clone, Debug)]
pub struct Beside {
    /// What it is.
    pub name: String,
    /// Its numbers.
    pub side: Side,
}

/// What stands around the table when it is written to a file.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// The heading and the first paragraph.
    pub opening: &'static str,
    /// What the numbers beside ours are called.
    pub beside: &'static str,
    /// How it is measured.
    pub method: &'static str,
}

/// The table while it grows.
#[derive(Debug)]
pub struct Report {
    page: Page,
    /// How busy the machine was before anything was measured.
    load: String,
    rows: Vec<Row>,
    notes: Vec<String>,
}

impl From<Samples> for Side {
    fn from(samples: Samples) -> Self {
        Self::Measured { samples, aside: Vec::new() }
    }
}

impl Side {
    fn samples(&self) -> Option<&Samples> {
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

impl Row {
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
            Target::None => None,
            Target::RatioAtMost { full, smoke } => self.ratio().map(|ratio| ratio <= pick(full, smoke)),
            Target::RatioAtLeast { full, smoke } => self.ratio().map(|ratio| ratio >= pick(full, smoke)),
            Target::AtLeast { full, smoke } => self.ours.samples().map(|it| it.median() >= pick(full, smoke)),
            Target::AtMost(most) => self.ours.samples().map(|it| it.quantile(1.0) <= most),
            Target::AboveAtMost(most) => self.pair().map(|(ours, theirs)| ours - theirs <= most),
        }
    }

    fn cells(&self) -> [String; 7] {
        let target = match self.target {
            Target::None => "reported".to_owned(),
            Target::RatioAtMost { full, .. } => format!("≤ {full}×"),
            Target::RatioAtLeast { full, .. } => format!("≥ {full}×"),
            Target::AtLeast { full, .. } => format!("≥ {}", self.unit.show(full)),
            Target::AtMost(most) => format!("≤ {}", self.unit.show(most)),
            Target::AboveAtMost(most) => format!("≤ {} more", self.unit.show(most)),
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

impl Unit {
    /// The value with its unit, as a person reads it.
    pub fn show(self, value: f64) -> String {
        match self {
            Self::Seconds if value < 10e-6 => format!("{:.2} µs", value * 1e6),
            Self::Seconds if value < 1e-3 => format!("{:.0} µs", value * 1e6),
            Self::Seconds => format!("{:.2} ms", value * 1e3),
            Self::PerSecond => format!("{value:.0}/s"),
            Self::Mebibytes => format!("{value:.3} MiB"),
        }
    }
}

impl Report {
    /// An empty table; notes how busy the machine is.
    pub fn begin(page: Page) -> Self {
        Self { page, load: machine::load(), rows: Vec::new(), notes: Vec::new() }
    }

    /// Adds a line.
    pub fn add(&mut self, row: Row) {
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

    /// The rows whose target is not reached.
    pub fn missed(&self) -> Vec<String> {
        self.failing(false)
    }

    /// The rows that miss even what a busy machine keeps.
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

    /// For a terminal.
    pub fn text(&self) -> String {
        let cells: Vec<[String; 7]> =
            std::iter::once(self.head()).chain(self.rows.iter().map(Row::cells)).collect();
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

    /// For `docs/bench/`.
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
