//! The checkpoint of an evaluation: records in a file, one line each, written as they come.
//!
//! The first line says which plan they belong to; one like it further down is that plan with more experiments or samples. A line that says
//! `retry_errors` makes void what had no score until then. Lines are only ever added, each by one write, so that whoever is killed loses
//! at most the line that was being written; whoever goes on removes what is left of it. Lines survive the end of the process;
//! a power cut may take the last ones, which are then asked again.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::{EvalError, Experiment, Outcome, Plan, Record};
use crate::loops::failpoint::{self, Step, reach};

const VERSION: u32 = 1;

/// How a line begins that is no record.
const HEAD: &[u8] = b"{\"snakepit_eval\":";
const AGAIN: &[u8] = b"{\"retry_errors\":";

/// The first line, and each after which there are more experiments or samples.
#[derive(PartialEq, Debug, Serialize, Deserialize)]
struct Head {
    snakepit_eval: u32,
    dataset: String,
    samples: usize,
    evaluator: Json,
    experiments: Vec<Experiment>,
}

impl Head {
    fn of(plan: &Plan) -> Self {
        Self {
            snakepit_eval: VERSION,
            dataset: plan.dataset.fingerprint().to_owned(),
            samples: plan.dataset.samples().len(),
            evaluator: plan.evaluator.to_json(),
            experiments: plan.experiments.clone(),
        }
    }

    /// Why a plan cannot go on with this, for a person. More samples after those that it has, and more experiments, are no
    /// reason, and neither is the order of experiments.
    fn difference(&self, plan: &Plan) -> Option<String> {
        let (dataset, samples) = (plan.dataset(), plan.dataset().samples().len());
        if self.snakepit_eval != VERSION {
            return Some(format!("its version is {}, and ours is {VERSION}", self.snakepit_eval));
        } else if self.samples > samples {
            return Some(format!("its data set has {} samples, and {samples} are too few now", self.samples));
        } else if dataset.fingerprint_of_first(self.samples).as_ref() != Some(&self.dataset) {
            return Some(format!("its data set was another one, of {} samples", self.samples));
        } else if self.evaluator != plan.evaluator.to_json() {
            return Some(format!("its evaluator is {}", self.evaluator));
        }
        let unlike = self.experiments.iter().find(|ours| !plan.experiments.contains(ours))?;
        let name = &unlike.name;
        Some(if plan.experiments.iter().any(|theirs| theirs.name == *name) {
            format!("its experiments are not the same: {name} asks in another way")
        } else {
            let names: Vec<&str> = self.experiments.iter().map(|it| it.name.as_str()).collect();
            format!("its experiments ({}) are not the same: {name} is missing now", names.join(", "))
        })
    }
}

/// The line after which samples without a score are asked again.
#[derive(Debug, Serialize)]
struct Again {
    /// How many that are.
    retry_errors: usize,
}

/// What a journal held when it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Found {
    /// Results.
    pub records: usize,
    /// Results of a sample that had one already; the first one holds.
    pub duplicates: usize,
    /// Bytes of a line that was never finished.
    pub torn: usize,
}

/// The records of an evaluation, one for each sample of each experiment.
#[derive(Debug)]
pub struct Journal {
    file: Option<(File, PathBuf)>,
    records: Vec<Record>,
    places: HashMap<(String, String), usize>,
    found: Found,
}

impl Journal {
    /// Records that are kept nowhere else.
    pub fn in_memory() -> Self {
        Self { file: None, records: Vec::new(), places: HashMap::new(), found: Found::default() }
    }

    /// Begins anew. A finished evaluation in this file is replaced, and one without any result; an unfinished one and any other
    /// file are refused.
    pub fn create(path: impl AsRef<Path>, plan: &Plan) -> Result<Self, EvalError> {
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

    /// Goes on with what is in this file; if there is nothing, begins. A plan may have more experiments than the file, and more
    /// samples after those that it has.
    pub fn resume(path: impl AsRef<Path>, plan: &Plan) -> Result<Self, EvalError> {
        let path = path.as_ref();
        let (mut file, text) = open(path)?;
        let mut journal = Self::in_memory();
        let Some((first, lines)) = split(path, &text)? else { return journal.begin(file, path, plan) };
        let ours = Head::of(plan);
        let foreign = |reason| EvalError::OtherCheckpoint { path: path.to_owned(), reason };
        // Before its records are believed: of another plan they are not damaged, but foreign. The last head has all that there is.
        let last = last_head(path, lines)?;
        if let Some(reason) = last.as_ref().unwrap_or(&first).difference(plan) {
            return Err(foreign(reason));
        }
        let ids: HashSet<&str> = plan.dataset.samples().iter().map(|sample| sample.id.as_str()).collect();
        let head = journal.take(path, first, lines, |record| {
            ids.contains(record.sample.as_str()) && plan.experiment(&record.experiment).is_some()
        })?;
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        journal.found.torn = text.len() - whole;
        let written = file.set_len(whole as u64).and_then(|()| file.seek(SeekFrom::End(0)));
        written.map_err(|error| EvalError::file("write", path, error))?;
        journal.file = Some((file, path.to_owned()));
        if head.experiments.len() < ours.experiments.len() || head.samples < ours.samples {
            journal.write(&ours, Step::HeadTorn)?;
        }
        Ok(journal)
    }

    /// Makes void what had no score, errors and timeouts, so that it is asked again; says how much that is.
    pub fn retry_errors(&mut self) -> Result<usize, EvalError> {
        let unscored = |record: &&Record| !matches!(record.outcome, Outcome::Scored { .. });
        let retry_errors = self.records.iter().filter(unscored).count();
        if retry_errors > 0 {
            self.write(&Again { retry_errors }, Step::RecordTorn)?;
            self.void();
        }
        Ok(retry_errors)
    }

    /// Forgets what had no score.
    fn void(&mut self) {
        let records = std::mem::take(&mut self.records);
        self.places.clear();
        for record in records {
            if matches!(record.outcome, Outcome::Scored { .. }) {
                self.keep(record);
            }
        }
    }

    /// Adds a line.
    fn write(&mut self, value: &impl Serialize, torn: Step) -> Result<(), EvalError> {
        let Some((file, path)) = &mut self.file else { return Ok(()) };
        write_line(file, &line(value), torn).map_err(|error| EvalError::file("write", path, error))
    }

    fn begin(mut self, mut file: File, path: &Path, plan: &Plan) -> Result<Self, EvalError> {
        let line = line(&Head::of(plan));
        let emptied = file.set_len(0).and_then(|()| file.rewind());
        reach(Step::Head);
        let written = emptied.and_then(|()| write_line(&mut file, &line, Step::HeadTorn));
        written.map_err(|error| EvalError::file("write", path, error))?;
        self.file = Some((file, path.to_owned()));
        Ok(self)
    }

    /// Takes in all lines after the first; gives back what the last head says.
    fn take(
        &mut self,
        path: &Path,
        mut head: Head,
        lines: &[u8],
        belongs: impl Fn(&Record) -> bool,
    ) -> Result<Head, EvalError> {
        let corrupt = |line, reason| EvalError::Corrupt { path: path.to_owned(), line, reason };
        let whole = lines.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        for (text, line) in lines[..whole].split_inclusive(|byte| *byte == b'\n').zip(2..) {
            let unreadable = |error: serde_json::Error| corrupt(line, error.to_string());
            if text.starts_with(HEAD) {
                head = serde_json::from_slice(text).map_err(unreadable)?;
                continue;
            }
            if text.starts_with(AGAIN) {
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

    fn keep(&mut self, record: Record) -> bool {
        let (experiment, sample) = record.key();
        let key = (experiment.to_owned(), sample.to_owned());
        if self.places.contains_key(&key) {
            return false;
        }
        self.places.insert(key, self.records.len());
        self.records.push(record);
        true
    }

    /// Adds a record; it is in the file when this returns. A sample that has one already keeps it, and this says `false`.
    pub fn add(&mut self, record: Record) -> Result<bool, EvalError> {
        if self.has(&record.experiment, &record.sample) {
            return Ok(false);
        }
        self.write(&record, Step::RecordTorn)?;
        reach(Step::Recorded);
        Ok(self.keep(record))
    }

    /// Whether a sample has a record.
    pub fn has(&self, experiment: &str, sample: &str) -> bool {
        self.get(experiment, sample).is_some()
    }

    /// The record of a sample.
    pub fn get(&self, experiment: &str, sample: &str) -> Option<&Record> {
        // A tuple of texts cannot be looked up by borrowed ones; the copies are small.
        let place = self.places.get(&(experiment.to_owned(), sample.to_owned()))?;
        self.records.get(*place)
    }

    /// All records, in the order in which they came.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// What there was when it was opened.
    pub fn found(&self) -> Found {
        self.found
    }
}

/// The file, locked for us, and what is in it.
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

/// The head and what follows it; nothing if the file is empty, or its head was never finished.
fn split<'a>(path: &Path, text: &'a [u8]) -> Result<Option<(Head, &'a [u8])>, EvalError> {
    let foreign = |reason: String| EvalError::OtherCheckpoint { path: path.to_owned(), reason };
    match text.iter().position(|byte| *byte == b'\n') {
        Some(end) => {
            let head = serde_json::from_slice(&text[..end]);
            let head: Head = head.map_err(|error| foreign(format!("its first line is not ours: {error}")))?;
            Ok(Some((head, &text[end + 1..])))
        }
        None if text.starts_with(HEAD) || HEAD.starts_with(text) => Ok(None),
        None => Err(foreign("its first line is not ours".into())),
    }
}

/// The last head after the first line, if there is one.
fn last_head(path: &Path, lines: &[u8]) -> Result<Option<Head>, EvalError> {
    let whole = lines.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let heads = lines[..whole].split_inclusive(|byte| *byte == b'\n').zip(2..);
    let Some((text, line)) = heads.filter(|(text, _)| text.starts_with(HEAD)).last() else { return Ok(None) };
    let unreadable = |error: serde_json::Error| EvalError::Corrupt {
        path: path.to_owned(),
        line,
        reason: error.to_string(),
    };
    serde_json::from_slice(text).map(Some).map_err(unreadable)
}

/// By one write, so that what is torn is torn by the end of the process or of the disk, and not by us.
fn write_line(file: &mut File, line: &str, torn: Step) -> std::io::Result<()> {
    if failpoint::is_due(torn) {
        file.write_all(&line.as_bytes()[..line.len() / 2])?;
        failpoint::end();
    }
    let before = file.stream_position()?;
    let written = crate::custody::catch_file_size_limit(|| file.write_all(line.as_bytes()));
    if written.is_err() {
        // What fitted would be the beginning of the next line. If it cannot be removed, whoever resumes does it.
        let _ = file.set_len(before).and_then(|()| file.seek(SeekFrom::Start(before)));
    }
    written
}

fn line(value: &impl Serialize) -> String {
    // Records and heads are structs with texts as keys, which always serialize.
    let mut line = serde_json::to_string(value).unwrap_or_default();
    line.push('\n');
    line
}
