//! Which samples run in which experiments, and how answers are judged.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::{Dataset, Sample};
use crate::{EvalError, EvalJournal, Evaluator};

/// The command that is asked, and its arguments.
///
/// ```
/// use snakepit::evals::{Dataset, EvalPlan, Evaluator, Experiment};
///
/// // Two settings of the same command are compared.
/// let answer = |name, temperature| Experiment::new(name, "answer").argument("temperature", temperature);
/// let dataset = Dataset::parse(r#"{"input": {"question": "1 + 2"}, "expected": "3"}"#)?;
/// let experiments = vec![answer("cold", 0.0), answer("warm", 0.8)];
/// let plan = EvalPlan::new(dataset, Evaluator::parse("exact")?, experiments)?;
/// # Ok::<(), snakepit::evals::EvalError>(())
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Experiment {
    /// The name of the experiment. The metadata of its calls contains the name as `experiment`.
    pub name: String,
    /// The command that answers.
    pub command: String,
    /// The command's pool. The default is the engine's first pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Arguments by name that are added to those of every sample. An input that is not an object then becomes the
    /// argument `input`.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub arguments: Map<String, Json>,
}

impl Experiment {
    /// Returns an experiment that asks a command.
    pub fn new(name: impl Into<String>, command: impl Into<String>) -> Self {
        Self { name: name.into(), command: command.into(), pool: None, arguments: Map::new() }
    }

    /// Returns an experiment for a [`Responder`](crate::Responder) that has no commands.
    pub fn named(name: impl Into<String>) -> Self {
        Self::new(name, "")
    }

    /// Sets the pool of the command.
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

/// The samples, experiments and evaluator of an evaluation. Equal plans can share a checkpoint.
///
/// ```
/// use snakepit::evals::{Dataset, EvalPlan, Evaluator, Experiment};
///
/// let dataset = Dataset::parse(r#"{"id": "one", "input": {"a": 1, "b": 2}, "expected": 3}"#)?;
/// let experiments = vec![Experiment::new("small", "answer"), Experiment::new("large", "answer_large")];
/// let plan = EvalPlan::new(dataset, Evaluator::parse("exact")?, experiments)?;
/// assert_eq!(plan.size(), 2);
/// # Ok::<(), snakepit::evals::EvalError>(())
/// ```
#[derive(Clone, Debug)]
pub struct EvalPlan {
    dataset: Dataset,
    pub(crate) evaluator: Arc<Evaluator>,
    experiments: Vec<Experiment>,
    pub(crate) timeout: Option<Duration>,
}

impl EvalPlan {
    /// Returns a plan that runs all samples in all experiments. The experiments need different names. The samples need
    /// an expected value if the evaluator compares with it.
    pub fn new(
        dataset: Dataset,
        evaluator: Evaluator,
        experiments: Vec<Experiment>,
    ) -> Result<Self, EvalError> {
        if experiments.is_empty() {
            return Err(EvalError::Experiment {
                name: "-".into(),
                reason: "the plan has no experiment: add one".into(),
            });
        }
        for (at, experiment) in experiments.iter().enumerate() {
            let name = experiment.name.clone();
            if name.is_empty() {
                let name = format!("number {}", at + 1);
                return Err(EvalError::Experiment { name, reason: "it has no name: give it one".into() });
            }
            if experiments[..at].iter().any(|other| other.name == name) {
                return Err(EvalError::Experiment {
                    name,
                    reason: "two experiments have this name: rename one of them".into(),
                });
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

    /// Sets how long one answer or one judgement may take.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Returns the evaluator.
    pub fn evaluator(&self) -> &Evaluator {
        &self.evaluator
    }

    /// Returns the data set.
    pub fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    /// Returns the experiments.
    pub fn experiments(&self) -> &[Experiment] {
        &self.experiments
    }

    /// Returns how many results the plan needs.
    pub fn size(&self) -> usize {
        self.dataset.samples().len() * self.experiments.len()
    }

    pub(crate) fn experiment(&self, name: &str) -> Option<&Experiment> {
        self.experiments.iter().find(|experiment| experiment.name == name)
    }

    /// Returns the samples and experiments that the journal has no record of, sample by sample, so that a change of
    /// conditions (a machine that gets busy) affects all experiments alike.
    pub(crate) fn left(&self, journal: &EvalJournal) -> Vec<(&Sample, &Experiment)> {
        let samples = self.dataset.samples().iter();
        let pairs = samples.flat_map(|sample| self.experiments.iter().map(move |it| (sample, it)));
        pairs.filter(|(sample, experiment)| !journal.has(&experiment.name, &sample.id)).collect()
    }
}
