//! The checkpoint of an evaluation: a file with one record per line, written as the records arrive.
//!
//! The first line is the plan. A later line of the same kind is the same plan with more experiments or samples. A line
//! with `retry_errors` voids all earlier records without a score. Lines are only appended, each with one write, so a
//! killed process loses at most the line that it was writing. A resumed evaluation removes the torn rest. Lines survive
//! the end of the process. A power cut may lose the last ones, and their samples then run again.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::SampleRecord;
use crate::loops::failpoint::{self, LoopFailpoint, reach};
use crate::{EvalError, EvalPlan, Experiment};

const VERSION: u32 = 1;

/// The beginnings of the lines that are not records.
const PLAN_LINE: &[u8] = b"{\"snakepit_eval\":";
const RETRY_LINE: &[u8] = b"{\"retry_errors\":";

/// A plan: the first line, and a further line whenever experiments or samples are added.
#[derive(PartialEq, Debug, Serialize, Deserialize)]
struct PlanLine {
    snakepit_eval: u32,
    dataset: String,
    samples: usize,
    evaluator: Json,
    experiments: Vec<Experiment>,
}

impl PlanLine {
    fn of(plan: &EvalPlan) -> Self {
        Self {
            snakepit_eval: VERSION,
            dataset: plan.dataset().fingerprint().to_owned(),
            samples: plan.dataset().samples().len(),
            evaluator: plan.evaluator.to_json(),
            experiments: plan.experiments().to_vec(),
        }
    }

    /// Returns why a plan cannot resume this checkpoint, as text. A plan may add samples at the end, add experiments,
    /// and reorder experiments.
    fn difference(&self, plan: &EvalPlan) -> Option<String> {
        let (dataset, samples) = (plan.dataset(), plan.dataset().samples().len());
        if self.samples > samples {
            return Some(format!(
                "its data set has {} samples, and the given one has only {samples}",
                self.samples
            ));
        } else if dataset.fingerprint_of_first(self.samples).as_ref() != Some(&self.dataset) {
            return Some(format!("its data set has {} other samples", self.samples));
        } else if self.evaluator != plan.evaluator.to_json() {
            return Some(format!("its evaluator is {}, unlike the given one", self.evaluator));
        }
        let unlike = self.experiments.iter().find(|ours| !plan.experiments().contains(ours))?;
        let name = &unlike.name;
        Some(if plan.experiments().iter().any(|theirs| theirs.name == *name) {
            format!("its experiment {name} is defined differently")
        } else {
            let names: Vec<&str> = self.experiments.iter().map(|it| it.name.as_str()).collect();
            format!("its experiments are {}, and {name} is missing now", names.join(", "))
        })
    }
}

/// What every version has in its plan lines.
#[derive(Deserialize)]
struct PlanFormat {
    snakepit_eval: u32,
}

/// Fails if another version wrote a plan line. Any other line is left to the caller.
fn check_format(path: &Path, text: &[u8]) -> Result<(), EvalError> {
    match serde_json::from_slice(text) {
        Ok(PlanFormat { snakepit_eval: found }) if found != VERSION => {
            Err(EvalError::OtherFormat { path: path.to_owned(), found, ours: VERSION })
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The line after which samples without a score run again.
#[derive(Debug, Serialize)]
struct RetryLine {
    /// The number of these samples.
    retry_errors: usize,
}

/// The contents of a journal when it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct JournalContents {
    /// The number of records.
    pub records: usize,
    /// The number of further records of a sample that already had one. The first record counts.
    pub duplicates: usize,
    /// The number of bytes of an unfinished last line.
    pub torn: usize,
}

/// The records of an evaluation, one for each sample of each experiment.
///
/// ```no_run
/// use snakepit::evals::{EvalError, EvalJournal, EvalPlan, Evaluation};
///
/// # async fn example(pit: snakepit::Snakepit, plan: EvalPlan) -> Result<(), EvalError> {
/// let mut journal = EvalJournal::resume("data.eval.jsonl", &plan)?;
/// println!("{} of {} results are there", journal.records().len(), plan.size());
/// journal.retry_errors()?;
/// let report = Evaluation::new(plan).run(&pit, &mut journal, |_| {}).await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct EvalJournal {
    file: Option<(File, PathBuf)>,
    records: Vec<SampleRecord>,
    places: HashMap<(String, String), usize>,
    found: JournalContents,
}

impl EvalJournal {
    /// Returns a journal without a file.
    pub fn in_memory() -> Self {
        Self { file: None, records: Vec::new(), places: HashMap::new(), found: JournalContents::default() }
    }

    /// Starts a new journal in this file. Replaces an evaluation that is finished or has no results. Refuses an
    /// unfinished evaluation and any other file.
    pub fn create(path: impl AsRef<Path>, plan: &EvalPlan) -> Result<Self, EvalError> {
        let (file, text) = open(path.as_ref())?;
        let mut journal = Self::in_memory();
        if let Some((first, lines)) = split(path.as_ref(), &text)? {
            let head = journal.take(path.as_ref(), first, lines, |_| true)?;
            let (done, all) = (journal.records.len(), head.samples * head.experiments.len());
            if (1..all).contains(&done) {
                return Err(EvalError::Unfinished { path: path.as_ref().to_owned(), done, all });
            }
            journal = Self::in_memory();
        }
        journal.begin(file, path.as_ref(), plan)
    }

    /// Continues the journal in this file, or starts a new one. The plan may have more experiments than the file, and
    /// more samples at the end.
    pub fn resume(path: impl AsRef<Path>, plan: &EvalPlan) -> Result<Self, EvalError> {
        let path = path.as_ref();
        let (mut file, text) = open(path)?;
        let mut journal = Self::in_memory();
        let Some((first, lines)) = split(path, &text)? else { return journal.begin(file, path, plan) };
        let ours = PlanLine::of(plan);
        let foreign = |reason| EvalError::OtherCheckpoint { path: path.to_owned(), reason };
        // This is checked before the records, because records of another plan would look damaged. The last plan
        // contains everything.
        let last = last_plan_line(path, lines)?;
        if let Some(reason) = last.as_ref().unwrap_or(&first).difference(plan) {
            return Err(foreign(reason));
        }
        let ids: HashSet<&str> = plan.dataset().samples().iter().map(|sample| sample.id.as_str()).collect();
        let head = journal.take(path, first, lines, |record| {
            ids.contains(record.sample.as_str()) && plan.experiment(&record.experiment).is_some()
        })?;
        let whole = finished_length(&text);
        journal.found.torn = text.len() - whole;
        let written = file.set_len(whole as u64).and_then(|()| file.seek(SeekFrom::End(0)));
        written.map_err(|error| EvalError::file("write", path, error))?;
        journal.file = Some((file, path.to_owned()));
        if head.experiments.len() < ours.experiments.len() || head.samples < ours.samples {
            journal.write(&ours, LoopFailpoint::HeadTorn)?;
        }
        Ok(journal)
    }

    /// Voids all records without a score (errors and timeouts), so that their samples run again. Returns how many there
    /// are.
    pub fn retry_errors(&mut self) -> Result<usize, EvalError> {
        let retry_errors = self.records.iter().filter(|record| !record.is_scored()).count();
        if retry_errors > 0 {
            self.write(&RetryLine { retry_errors }, LoopFailpoint::RecordTorn)?;
            self.void();
        }
        Ok(retry_errors)
    }

    /// Forgets the records without a score.
    fn void(&mut self) {
        let records = std::mem::take(&mut self.records);
        self.places.clear();
        for record in records.into_iter().filter(SampleRecord::is_scored) {
            self.keep(record);
        }
    }

    /// Appends a line.
    fn write(&mut self, value: &impl Serialize, torn: LoopFailpoint) -> Result<(), EvalError> {
        let Some((file, path)) = &mut self.file else { return Ok(()) };
        write_line(file, &line(value), torn).map_err(|error| EvalError::file("write", path, error))
    }

    fn begin(mut self, mut file: File, path: &Path, plan: &EvalPlan) -> Result<Self, EvalError> {
        let line = line(&PlanLine::of(plan));
        let emptied = file.set_len(0).and_then(|()| file.rewind());
        reach(LoopFailpoint::Head);
        let written = emptied.and_then(|()| write_line(&mut file, &line, LoopFailpoint::HeadTorn));
        written.map_err(|error| EvalError::file("write", path, error))?;
        self.file = Some((file, path.to_owned()));
        Ok(self)
    }

    /// Reads all lines after the first. Returns the last plan.
    fn take(
        &mut self,
        path: &Path,
        mut head: PlanLine,
        lines: &[u8],
        belongs: impl Fn(&SampleRecord) -> bool,
    ) -> Result<PlanLine, EvalError> {
        let corrupt = |line, reason| EvalError::Corrupt { path: path.to_owned(), line, reason };
        for (text, line) in finished_lines(lines) {
            let unreadable = |error: serde_json::Error| corrupt(line, error.to_string());
            if text.starts_with(PLAN_LINE) {
                check_format(path, text)?;
                head = serde_json::from_slice(text).map_err(unreadable)?;
                continue;
            }
            if text.starts_with(RETRY_LINE) {
                self.void();
                continue;
            }
            let record = serde_json::from_slice(text).map_err(unreadable)?;
            if !belongs(&record) {
                return Err(corrupt(line, "it belongs to no sample of the evaluation".into()));
            }
            if !self.keep(record) {
                self.found.duplicates += 1;
            }
        }
        self.found.records = self.records.len();
        Ok(head)
    }

    fn keep(&mut self, record: SampleRecord) -> bool {
        let key = (record.experiment.clone(), record.sample.clone());
        if self.places.contains_key(&key) {
            return false;
        }
        self.places.insert(key, self.records.len());
        self.records.push(record);
        true
    }

    /// Appends a record, which is in the file when this returns. Returns `false` if the sample already has a record,
    /// which is kept.
    pub fn add(&mut self, record: SampleRecord) -> Result<bool, EvalError> {
        if self.has(&record.experiment, &record.sample) {
            return Ok(false);
        }
        self.write(&record, LoopFailpoint::RecordTorn)?;
        reach(LoopFailpoint::Recorded);
        Ok(self.keep(record))
    }

    /// Reports whether a sample has a record.
    pub fn has(&self, experiment: &str, sample: &str) -> bool {
        self.get(experiment, sample).is_some()
    }

    /// Returns the record of a sample.
    pub fn get(&self, experiment: &str, sample: &str) -> Option<&SampleRecord> {
        // A tuple of `String` cannot be looked up by a tuple of `&str`. The copies are small.
        let place = self.places.get(&(experiment.to_owned(), sample.to_owned()))?;
        self.records.get(*place)
    }

    /// Returns all records, in the order of their arrival.
    pub fn records(&self) -> &[SampleRecord] {
        &self.records
    }

    /// Returns what the journal contained when it was opened.
    pub fn found(&self) -> JournalContents {
        self.found
    }
}

/// Opens and locks the file, and reads it.
fn open(path: &Path) -> Result<(File, Vec<u8>), EvalError> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    let mut file = file.map_err(|error| EvalError::file("open", path, error))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(EvalError::Locked { path: path.to_owned() }),
        Err(TryLockError::Error(error)) => return Err(EvalError::file("lock", path, error)),
    }
    let mut text = Vec::new();
    file.read_to_end(&mut text).map_err(|error| EvalError::file("read", path, error))?;
    Ok((file, text))
}

/// Splits the text into the plan and the lines after it. Returns `None` if the file is empty or the first line
/// unfinished.
fn split<'a>(path: &Path, text: &'a [u8]) -> Result<Option<(PlanLine, &'a [u8])>, EvalError> {
    let foreign = |reason: String| EvalError::OtherCheckpoint { path: path.to_owned(), reason };
    match text.iter().position(|byte| *byte == b'\n') {
        Some(end) => {
            check_format(path, &text[..end])?;
            let head = serde_json::from_slice(&text[..end]);
            let head: PlanLine =
                head.map_err(|error| foreign(format!("its first line is not a plan: {error}")))?;
            Ok(Some((head, &text[end + 1..])))
        }
        None if text.starts_with(PLAN_LINE) || PLAN_LINE.starts_with(text) => Ok(None),
        None => Err(foreign("its first line is not a plan".into())),
    }
}

/// Returns the length of the finished lines of a text.
fn finished_length(text: &[u8]) -> usize {
    text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1)
}

/// Returns the finished lines after the first one, with their numbers.
fn finished_lines(lines: &[u8]) -> impl Iterator<Item = (&[u8], usize)> {
    lines[..finished_length(lines)].split_inclusive(|byte| *byte == b'\n').zip(2..)
}

/// Returns the last plan after the first line, if there is one.
fn last_plan_line(path: &Path, lines: &[u8]) -> Result<Option<PlanLine>, EvalError> {
    let plan_lines = finished_lines(lines).filter(|(text, _)| text.starts_with(PLAN_LINE));
    let Some((text, line)) = plan_lines.last() else { return Ok(None) };
    check_format(path, text)?;
    let unreadable = |error: serde_json::Error| EvalError::Corrupt {
        path: path.to_owned(),
        line,
        reason: error.to_string(),
    };
    serde_json::from_slice(text).map(Some).map_err(unreadable)
}

/// Appends a line with one write, so that only the end of the process or of the disk space can tear it.
fn write_line(file: &mut File, line: &str, torn: LoopFailpoint) -> std::io::Result<()> {
    if failpoint::is_due(torn) {
        file.write_all(&line.as_bytes()[..line.len() / 2])?;
        failpoint::end();
    }
    let before = file.stream_position()?;
    let written = crate::custody::catch_file_size_limit(|| file.write_all(line.as_bytes()));
    if written.is_err() {
        // The written part would become the beginning of the next line. If it cannot be removed here, `resume` removes
        // it.
        let _ = file.set_len(before).and_then(|()| file.seek(SeekFrom::Start(before)));
    }
    written
}

fn line(value: &impl Serialize) -> String {
    // All lines are structs with text keys, which always serialize.
    let mut line = serde_json::to_string(value).unwrap_or_default();
    line.push('\n');
    line
}
