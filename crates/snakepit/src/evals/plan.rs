//! What is evaluated: which experiments, on which samples, and how they are judged.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::{Dataset, EvalError, Evaluator, Journal, Sample};

/// Who is asked, and how.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Experiment {
    /// Its name. The command gets it as `experiment` in its call's metadata.
    pub name: String,
    /// The command that answers.
    pub command: String,
    /// Its pool; the first one unless it is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Arguments by name that are added to those of every sample. A sample whose input is no object is then the argument
    /// `input`.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub arguments: Map<String, Json>,
}

impl Experiment {
    /// Asks a command.
    pub fn new(name: impl Into<String>, command: impl Into<String>) -> Self {
        Self { name: name.into(), command: command.into(), pool: None, arguments: Map::new() }
    }

    /// Asks a [`Responder`](super::Responder) that knows no commands.
    pub fn named(name: impl Into<String>) -> Self {
        Self::new(name, "")
    }

    /// Asks a command of this pool.
    pub fn pool(mut self, pool: impl Into<String>) -> Self {
        self.pool = Some(pool.into());
        self
    }

    /// Adds an argument to those of every sample.
    pub fn argument(mut self, name: impl Into<String>, value: impl Into<Json>) -> Self {
        self.arguments.insert(name.into(), value.into());
        self
    }
}

/// What is evaluated. Two plans that are equal can share a checkpoint.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(super) dataset: Dataset,
    pub(super) evaluator: Arc<Evaluator>,
    pub(super) experiments: Vec<Experiment>,
    pub(super) timeout: Option<Duration>,
}

impl Plan {
    /// All samples in all experiments. Experiments have different names, and samples say what is expected if the evaluator
    /// compares with it.
    pub fn new(
        dataset: Dataset,
        evaluator: Evaluator,
        experiments: Vec<Experiment>,
    ) -> Result<Self, EvalError> {
        if experiments.is_empty() {
            return Err(EvalError::Experiment { name: "-".into(), reason: "there is none".into() });
        }
        for (at, experiment) in experiments.iter().enumerate() {
            let name = experiment.name.clone();
            if name.is_empty() {
                return Err(EvalError::Experiment { name, reason: "it has no name".into() });
            }
            if experiments[..at].iter().any(|other| other.name == name) {
                return Err(EvalError::Experiment { name, reason: "its name is given twice".into() });
            }
        }
        if let Some(line) = dataset.line_without_expected().filter(|_| evaluator.needs_expected()) {
            let evaluator = evaluator.to_json();
            let reason = format!(
                "it has no \"expected\", which {evaluator} compares the answer with: add one (null, if None is the right answer), \
                 or judge by something else, such as regex:PATTERN, judge:COMMAND or python:FILE.py:FUNCTION"
            );
            return Err(EvalError::Sample { line, reason });
        }
        Ok(Self { dataset, evaluator: Arc::new(evaluator), experiments, timeout: None })
    }

    /// How long one answer, and one judgement, may take.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How answers are judged.
    pub fn evaluator(&self) -> &Evaluator {
        &self.evaluator
    }

    /// The data set.
    pub fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    /// The experiments.
    pub fn experiments(&self) -> &[Experiment] {
        &self.experiments
    }

    /// How many results it takes.
    pub fn size(&self) -> usize {
        self.dataset.samples().len() * self.experiments.len()
    }

    pub(super) fn experiment(&self, name: &str) -> Option<&Experiment> {
        self.experiments.iter().find(|experiment| experiment.name == name)
    }

    /// What a journal has no record of, sample by sample, so that whatever changes meanwhile (a machine that gets busy) concerns all
    /// experiments alike.
    pub(super) fn left(&self, journal: &Journal) -> Vec<(&Sample, &Experiment)> {
        let samples = self.dataset.samples().iter();
        let pairs = samples.flat_map(|sample| self.experiments.iter().map(move |it| (sample, it)));
        pairs.filter(|(sample, experiment)| !journal.has(&experiment.name, &sample.id)).collect()
    }
}
