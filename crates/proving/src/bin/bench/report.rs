//! The one table: rows, verdicts, and the two ways to print them.

use std::fmt::Write as _;

use crate::sample::Samples;

/// What the numbers of a row are.
#[derive(Clone, Copy)]
pub(crate) enum Unit {
    Seconds,
    PerSecond,
    Mebibytes,
}

/// What a row must reach. `Smoke` bounds are those that even a busy machine keeps.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    /// Reported only.
    None,
    /// Ours divided by the floor.
    RatioAtMost { full: f64, smoke: f64 },
    /// Ours by itself.
    AtLeast { full: f64, smoke: f64 },
    /// Ours by itself; memory does not depend on how busy the machine is.
    AtMost(f64),
}

/// One line of the table.
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) unit: Unit,
    pub(crate) ours: Samples,
    pub(crate) floor: Option<Floor>,
    pub(crate) target: Target,
}

/// The best that the same mechanism can do, measured by turns with ours.
pub(crate) struct Floor {
    pub(crate) name: String,
    pub(crate) samples: Samples,
}

pub(crate) struct Report {
    /// How busy the machine was before anything was measured.
    load: String,
    rows: Vec<Row>,
    notes: Vec<String>,
}

impl Row {
    fn ratio(&self) -> Option<f64> {
        self.floor.as_ref().map(|floor| self.ours.median() / floor.samples.median())
    }

    fn keeps(&self, smoke: bool) -> Option<bool> {
        let pick = |full: f64, easy: f64| if smoke { easy } else { full };
        match self.target {
            Target::None => None,
            Target::RatioAtMost { full, smoke } => self.ratio().map(|ratio| ratio <= pick(full, smoke)),
            Target::AtLeast { full, smoke } => Some(self.ours.median() >= pick(full, smoke)),
            Target::AtMost(most) => Some(self.ours.quantile(1.0) <= most),
        }
    }

    fn cells(&self) -> [String; 7] {
        let show = |samples: &Samples| {
            let low_high = [samples.quantile(0.1), samples.quantile(0.9)].map(|it| self.unit.show(it));
            format!("{} ({} – {})", self.unit.show(samples.median()), low_high[0], low_high[1])
        };
        let target = match self.target {
            Target::None => "reported".to_owned(),
            Target::RatioAtMost { full, .. } => format!("≤ {full}×"),
            Target::AtLeast { full, .. } => format!("≥ {}", self.unit.show(full)),
            Target::AtMost(most) => format!("≤ {}", self.unit.show(most)),
        };
        let verdict = match self.keeps(false) {
            None => "–",
            Some(true) => "pass",
            Some(false) => "MISS",
        };
        [
            self.what.clone(),
            show(&self.ours),
            self.floor.as_ref().map_or("–".to_owned(), |floor| show(&floor.samples)),
            self.floor.as_ref().map_or("–".to_owned(), |floor| floor.name.clone()),
            self.ratio().map_or("–".to_owned(), |ratio| format!("{ratio:.2}×")),
            target,
            format!("{verdict} (n={})", self.ours.len()),
        ]
    }
}

impl Unit {
    fn show(self, value: f64) -> String {
        match self {
            Self::Seconds if value < 10e-6 => format!("{:.2} µs", value * 1e6),
            Self::Seconds if value < 1e-3 => format!("{:.0} µs", value * 1e6),
            Self::Seconds => format!("{:.2} ms", value * 1e3),
            Self::PerSecond => format!("{value:.0}/s"),
            Self::Mebibytes => format!("{value:.3} MiB"),
        }
    }
}

const HEAD: [&str; 7] =
    ["what", "ours: median (p10 – p90)", "floor", "floor is", "ratio", "target", "verdict"];

impl Report {
    pub(crate) fn begin() -> Self {
        Self { load: load(), rows: Vec::new(), notes: Vec::new() }
    }

    pub(crate) fn add(&mut self, row: Row) {
        eprintln!("  {}", row.what);
        self.rows.push(row);
    }

    pub(crate) fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        eprintln!("  note: {note}");
        self.notes.push(note);
    }

    /// The rows whose target is not reached.
    pub(crate) fn missed(&self) -> Vec<String> {
        self.failing(false)
    }

    /// The rows that miss even what a busy machine keeps.
    pub(crate) fn broken(&self) -> Vec<String> {
        self.failing(true)
    }

    fn failing(&self, smoke: bool) -> Vec<String> {
        self.rows
            .iter()
            .filter(|row| row.keeps(smoke) == Some(false))
            .map(|row| row.cells().join(" | "))
            .collect()
    }

    pub(crate) fn text(&self) -> String {
        let cells: Vec<[String; 7]> =
            std::iter::once(HEAD.map(str::to_owned)).chain(self.rows.iter().map(Row::cells)).collect();
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

    pub(crate) fn markdown(&self) -> String {
        let mut text = String::from(
            "# Custody: speed and size\n\n\
             Written by `cargo run --release -p snakepit-proving --bin bench -- --write`. Each number stands beside \
             its floor, the best that the same mechanism can do, measured in the same run and by turns (ours, floor, \
             ours, …), because machines are noisy. Values are medians with the 10th and 90th percentile.\n\n",
        );
        let _ = writeln!(
            text,
            "Machine: {}; load {} when the run began, {} when it ended.\n",
            machine(),
            self.load,
            load()
        );
        let _ = writeln!(text, "| {} |\n|{}", HEAD.join(" | "), "---|".repeat(HEAD.len()));
        for row in &self.rows {
            let _ = writeln!(text, "| {} |", row.cells().join(" | "));
        }
        text.push_str(METHOD);
        for note in &self.notes {
            let _ = writeln!(text, "- {note}");
        }
        text
    }
}

const METHOD: &str = "\n## How it is measured\n\n\
- **kill -9 of the host → all gone**: pidfds of the host and of all its descendants are opened beforehand; the time \
runs from the signal until the last of them is readable. The floor is `crates/proving/src/bin/floor.rs`: the same \
tree with nothing but PDEATHSIG, linked statically, so that its processes are as small as ours. Host and workers \
(`/bin/sleep`) are the same programs on both sides.\n\
- **spawn to exec**: from the call until it returns, which is when the program runs, for ours as for `posix_spawn`.\n\
- **spawn + wait**: `/bin/true`, until the worker and all that it may have started are gone; for the floor until \
`waitpid` returns.\n\
- **ledger append**: a record as a spawn writes it; the floor is a bare `pwrite` of 512 bytes on the same disk.\n\
- **Pss**: from `smaps_rollup`, with 100 workers running; the largest counts.\n";

fn load() -> String {
    let averages = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    averages.split(' ').next().unwrap_or("unknown").to_owned()
}

fn machine() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let model = model.map_or("unknown", |(_, name)| name);
    format!("{cores} cores ({model}), Linux {}", kernel.trim())
}
