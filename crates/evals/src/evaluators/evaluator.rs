//! The kinds of evaluators, and what each needs.

use std::path::{Path, PathBuf};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use regex::Regex;
use serde_json::Value as Json;
use serde_json_path::JsonPath;

use super::{EvaluatorFunction, Judgement};
use crate::responders::SampleFailure;
use crate::run::SampleRunner;
use crate::{Sample, SampleStage};
use snakepit_core::PoolOptions;
use snakepit_protocol::args;

/// The most characters of a file's name that go into the name of its pool, which is part of the bounded names of
/// workers.
const MAX_STEM: usize = 32;

/// A way to judge an answer. [`Evaluator::parse`] reads an evaluator from a text, [`Evaluator::from_json`] from a
/// configuration.
///
/// ```
/// use snakepit::evals::Evaluator;
///
/// let close = Evaluator::parse("numeric:1%")?;
/// let both = Evaluator::parse(r#"{"all_of": ["contains", "regex:^[A-Z]"]}"#)?;
/// let polite = Evaluator::function("polite", |_, answer| answer.as_str().is_some_and(|text| text.contains("please")));
/// assert!(close.needs_expected() && both.needs_expected() && !polite.needs_expected());
/// # Ok::<(), snakepit::evals::EvalError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Evaluator {
    /// The answer equals the expected value. 4 and 4.0 are equal.
    Exact,
    /// The text of the answer contains the expected text, or every text of an expected list. An answer that is a list
    /// has the expected value as an element.
    Contains,
    /// The answer is a number, or the text of a number, and close enough:
    /// `|answer - expected| ≤ max(absolute, relative × |expected|)`.
    Numeric {
        /// The tolerance in the unit of the number.
        absolute: f64,
        /// The tolerance as a fraction of the expected number.
        relative: f64,
    },
    /// The text of the answer matches this pattern, or the expected pattern.
    Regex(Option<Regex>),
    /// The value that a JSONPath (RFC 9535) finds in the answer equals the expected value. Several finds form a list.
    Path(JsonPath),
    /// All parts pass. The score is the lowest of the parts.
    AllOf(Vec<Evaluator>),
    /// One part passes. The score is the highest of the parts.
    AnyOf(Vec<Evaluator>),
    /// A command of a pool judges. It gets `input`, `output` and `expected`, and returns a bool, a score from 0 to 1,
    /// or `{"score": …, "passed": …, "why": …}` (or `"reason"`). Without `passed`, 0.5 and above pass.
    Judge {
        /// The command.
        command: String,
        /// The command's pool. The default is the engine's first pool.
        pool: Option<String>,
    },
    /// A Python function with the decorator `@snakepit.evaluator` judges. It gets those of `sample`, `input`, `output`
    /// and `expected` that it takes, and returns what a judge command returns.
    Python {
        /// The function's file, which has a pool of its own ([`Evaluator::pools`]). `None` if the workers of the first
        /// pool have the function.
        file: Option<PathBuf>,
        /// The function's name.
        function: String,
    },
    /// A function of the host judges.
    Function(EvaluatorFunction),
}

impl Evaluator {
    pub(crate) fn judge<'a>(
        &'a self,
        sample: &'a Sample,
        output: &'a Json,
        runner: &'a SampleRunner,
    ) -> BoxFuture<'a, Result<Judgement, SampleFailure>> {
        let failed = |reason| SampleFailure::error(SampleStage::Judge, reason);
        async move {
            match self {
                Self::AllOf(parts) => all_of(judge_each(parts, sample, output, runner).await?),
                Self::AnyOf(parts) => any_of(judge_each(parts, sample, output, runner).await?),
                Self::Judge { command, pool } => {
                    let arguments =
                        || args! { input: &sample.input, output: output, expected: &sample.expected };
                    let answer = runner.ask_judge(command, pool.as_deref(), sample, arguments).await?;
                    Judgement::from_json(&answer).map_err(failed)
                }
                Self::Python { file, function } => {
                    let pool = file.as_deref().map(pool_name);
                    let arguments = || {
                        args! { sample: sample, input: &sample.input, output: output, expected: &sample.expected }
                    };
                    let answer = runner.ask_judge(function, pool.as_deref(), sample, arguments).await?;
                    Judgement::from_json(&answer).map_err(failed)
                }
                Self::Function(function) => function.judge(sample, output, runner.host_timeout()).await,
                Self::Exact | Self::Contains | Self::Numeric { .. } | Self::Regex(_) | Self::Path(_) => {
                    self.compare(&sample.expected, output).map_err(failed)
                }
            }
        }
        .boxed()
    }

    /// Returns the evaluators that this one is made of: itself, unless it combines others.
    fn simple_parts(&self) -> Vec<&Self> {
        match self {
            Self::AllOf(parts) | Self::AnyOf(parts) => parts.iter().flat_map(Self::simple_parts).collect(),
            simple => vec![simple],
        }
    }

    /// Reports whether the evaluator needs a pool.
    pub fn asks_a_pool(&self) -> bool {
        self.simple_parts().iter().any(|part| matches!(part, Self::Judge { .. } | Self::Python { .. }))
    }

    /// Reports whether the evaluator can judge only samples with an expected value.
    pub fn needs_expected(&self) -> bool {
        match self {
            Self::Exact | Self::Contains | Self::Numeric { .. } | Self::Regex(None) | Self::Path(_) => true,
            Self::Regex(Some(_)) | Self::Judge { .. } | Self::Python { .. } | Self::Function(_) => false,
            Self::AllOf(parts) => parts.iter().any(Self::needs_expected),
            // One part that needs no expected value is enough.
            Self::AnyOf(parts) => parts.iter().all(Self::needs_expected),
        }
    }

    /// Returns the Python files of the evaluators, each once.
    pub fn files(&self) -> Vec<&Path> {
        let parts = self.simple_parts().into_iter();
        let mut files: Vec<&Path> = parts
            .filter_map(|part| match part {
                Self::Python { file, .. } => file.as_deref(),
                _ => None,
            })
            .collect();
        files.sort_unstable();
        files.dedup();
        files
    }

    /// Returns the pools of these files. Add them to the engine that judges.
    pub fn pools(&self) -> Vec<PoolOptions> {
        let pool = |file: &Path| snakepit_adapters::python::pool(file).name(pool_name(file)).for_evaluation();
        self.files().into_iter().map(pool).collect()
    }
}

type PartResults = Vec<Result<Judgement, SampleFailure>>;

/// Returns the judgement of each part. A failure that every sample would have ends the evaluation.
async fn judge_each(
    parts: &[Evaluator],
    sample: &Sample,
    output: &Json,
    runner: &SampleRunner,
) -> Result<PartResults, SampleFailure> {
    let mut results = Vec::with_capacity(parts.len());
    for part in parts {
        match part.judge(sample, output, runner).await {
            Err(failure @ SampleFailure::Fatal(_)) => return Err(failure),
            result => results.push(result),
        }
    }
    Ok(results)
}

/// Combines parts that must all pass. If one part cannot judge, it is unknown whether all pass.
fn all_of(parts: PartResults) -> Result<Judgement, SampleFailure> {
    let parts = parts.into_iter().collect::<Result<Vec<_>, _>>()?;
    let score = parts.iter().map(|part| part.score).fold(1.0, f64::min);
    Ok(Judgement { score, passed: parts.iter().all(|part| part.passed), why: reasons(&parts) })
}

/// Combines parts of which one must pass. A part that passes is enough, even if others cannot judge.
fn any_of(parts: PartResults) -> Result<Judgement, SampleFailure> {
    let passed = parts.iter().flatten().any(|part| part.passed);
    let parts: Vec<Judgement> =
        parts.into_iter().filter(|part| part.is_ok() || !passed).collect::<Result<_, _>>()?;
    let score = parts.iter().map(|part| part.score).fold(0.0, f64::max);
    Ok(Judgement { score, passed, why: reasons(&parts) })
}

fn reasons(parts: &[Judgement]) -> Option<String> {
    let reasons: Vec<&str> = parts.iter().filter_map(|part| part.why.as_deref()).collect();
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

/// Returns the name of the pool for a file of evaluators.
fn pool_name(file: &Path) -> String {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    format!("evaluator-{}", stem.chars().map(plain).take(MAX_STEM).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_takes_the_lowest_score_and_any_of_the_highest() {
        let part = |score: f64| Ok(Judgement { score, passed: score >= 0.5, why: None });
        let open = || Err(SampleFailure::error(SampleStage::Judge, "broken"));
        let both =
            |judgement: Result<Judgement, SampleFailure>| judgement.ok().map(|it| (it.score, it.passed));
        assert_eq!(both(all_of(vec![part(0.9), part(0.6)])), Some((0.6, true)));
        assert_eq!(both(all_of(vec![part(0.9), part(0.1)])), Some((0.1, false)));
        assert_eq!(both(all_of(vec![part(0.9), open()])), None);
        assert_eq!(both(any_of(vec![part(0.1), part(0.6)])), Some((0.6, true)));
        assert_eq!(both(any_of(vec![open(), part(0.6)])), Some((0.6, true)));
        assert_eq!(both(any_of(vec![open(), part(0.1)])), None);
    }
}
