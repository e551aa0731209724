//! The section of the page about samples that have not passed. It shows the input, the expected answer and the actual
//! answer, filtered by experiment and by kind, a few to a page. It needs no script.

use maud::{Markup, html};
use serde_json::Value as Json;
use snakepit::evals::{EvalJournal, EvalPlan, Sample, SampleOutcome, SampleRecord, SampleStage};
use snakepit::value::harmless;

use super::word_diff;

const SAMPLES_PER_PAGE: usize = 25;

/// The maximum number of pages per kind and experiment. The checkpoint has the rest.
pub(super) const MOST_PAGES: usize = 20;

/// The maximum number of characters to show of a text.
const LONGEST_TEXT: usize = 2_000;

/// The reason why a sample has not passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FailureKind {
    Failed,
    Error,
    Timeout,
    Missing,
}

pub(super) const FAILURE_KINDS: [FailureKind; 4] =
    [FailureKind::Failed, FailureKind::Error, FailureKind::Timeout, FailureKind::Missing];

impl FailureKind {
    fn of(record: Option<&SampleRecord>) -> Option<Self> {
        match record.map(|record| &record.outcome) {
            Some(SampleOutcome::Scored { passed: true, .. }) => None,
            Some(SampleOutcome::Scored { .. }) => Some(Self::Failed),
            Some(SampleOutcome::Error { .. }) => Some(Self::Error),
            Some(SampleOutcome::TimedOut { .. }) => Some(Self::Timeout),
            None => Some(Self::Missing),
        }
    }

    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Error => "errors",
            Self::Timeout => "timeouts",
            Self::Missing => "missing",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Failed => "Wrong answers",
            Self::Error => "Errors",
            Self::Timeout => "Timeouts",
            Self::Missing => "Missing results",
        }
    }
}

/// The failures of one kind in one experiment.
struct FailureGroup<'a> {
    experiment: usize,
    kind: FailureKind,
    /// The first samples, in the order of the data set.
    listed: Vec<(&'a Sample, Option<&'a SampleRecord>)>,
    count: usize,
}

pub(super) struct FailedSamples<'a> {
    experiments: Vec<&'a str>,
    groups: Vec<FailureGroup<'a>>,
}

impl<'a> FailedSamples<'a> {
    pub(super) fn of(plan: &'a EvalPlan, journal: &'a EvalJournal) -> Self {
        let experiments: Vec<&str> = plan.experiments().iter().map(|it| it.name.as_str()).collect();
        let mut groups = Vec::new();
        for (experiment, name) in experiments.iter().enumerate() {
            let mut of_kinds =
                FAILURE_KINDS.map(|kind| FailureGroup { experiment, kind, listed: Vec::new(), count: 0 });
            for sample in plan.dataset().samples() {
                let record = journal.get(name, &sample.id);
                let Some(kind) = FailureKind::of(record) else { continue };
                let Some(group) = of_kinds.iter_mut().find(|group| group.kind == kind) else { continue };
                group.count += 1;
                if group.listed.len() < SAMPLES_PER_PAGE * MOST_PAGES {
                    group.listed.push((sample, record));
                }
            }
            groups.extend(of_kinds.into_iter().filter(|group| group.count > 0));
        }
        Self { experiments, groups }
    }

    pub(super) fn section(&self) -> Markup {
        let kinds = FAILURE_KINDS.into_iter().filter(|kind| self.count(Some(*kind)) > 0);
        html! {
            @if !self.groups.is_empty() {
                h2 { "What went wrong" }
                div class="wrong" {
                    @if self.experiments.len() > 1 {
                        (choice("x", "x-all", "All experiments"))
                        @for (at, name) in self.experiments.iter().enumerate() {
                            (choice("x", &format!("x{at}"), name))
                        }
                        span class="row-end" {}
                    }
                    (choice("k", "k-all", &format!("All kinds ({})", self.count(None))))
                    @for kind in kinds {
                        (choice(
                            "k",
                            &format!("k-{}", kind.class()),
                            &format!("{} ({})", kind.title(), self.count(Some(kind))),
                        ))
                    }
                    @for group in &self.groups { (group.section(self.experiments[group.experiment])) }
                }
            }
        }
    }

    fn count(&self, kind: Option<FailureKind>) -> usize {
        self.groups.iter().filter(|it| kind.is_none_or(|kind| it.kind == kind)).map(|it| it.count).sum()
    }
}

/// Returns one choice of a row. The choice that shows everything is preselected.
fn choice(row: &str, id: &str, label: &str) -> Markup {
    html! {
        input class="pick" type="radio" name=(row) id=(id) checked[id.ends_with("-all")];
        label class="choice" for=(id) { (harmless(label)) }
    }
}

impl FailureGroup<'_> {
    fn section(&self, experiment: &str) -> Markup {
        let pages: Vec<_> = self.listed.chunks(SAMPLES_PER_PAGE).collect();
        let row = format!("p{}-{}", self.experiment, self.kind.class());
        let range = |page: usize| {
            let end = (page * SAMPLES_PER_PAGE).min(self.listed.len());
            format!("{}–{end}", (page - 1) * SAMPLES_PER_PAGE + 1)
        };
        html! {
            section class={ "group x" (self.experiment) " " (self.kind.class()) } {
                h3 { (self.kind.title()) " in " (harmless(experiment)) ": " (self.count) }
                @if pages.len() > 1 {
                    @for page in 1..=pages.len() {
                        input class="pick" type="radio" name=(row) id={ (row) "-" (page) } checked[page == 1];
                    }
                    nav class="pages-nav" {
                        @for page in 1..=pages.len() { label for={ (row) "-" (page) } { (range(page)) } }
                    }
                    div class="pages" { @for page in &pages { div class="page" { (articles(page)) } } }
                } @else {
                    (articles(&self.listed))
                }
                @if self.count > self.listed.len() {
                    p class="note" { "The checkpoint has " (self.count - self.listed.len()) " more." }
                }
            }
        }
    }
}

fn articles(listed: &[(&Sample, Option<&SampleRecord>)]) -> Markup {
    html! { @for (sample, record) in listed { (article(sample, *record)) } }
}

fn article(sample: &Sample, record: Option<&SampleRecord>) -> Markup {
    let (mark, message) = match record.map(|record| &record.outcome) {
        Some(SampleOutcome::Scored { score, why, .. }) => (format!("score {score:.3}"), why.as_deref()),
        Some(SampleOutcome::Error { stage, message } | SampleOutcome::TimedOut { stage, message }) => {
            (origin(*stage).to_owned(), Some(message.as_str()))
        }
        None => ("there is no result".to_owned(), None),
    };
    let (expected, output) = side_by_side(&sample.expected, record.and_then(|record| record.output.as_ref()));
    let is_scored = matches!(record.map(|it| &it.outcome), Some(SampleOutcome::Scored { .. }));
    let difference =
        output.as_ref().filter(|_| is_scored).and_then(|output| word_diff::marked(&expected, output));
    html! {
        article {
            h4 { (harmless(&sample.id)) span { (mark) } }
            @if let Some(message) = message { p class="message" { (harmless(&shortened(message))) } }
            div class="sides" {
                (side("Input", &text(&sample.input)))
                (side("Expected", &expected))
                @if let Some(output) = &output { (side("Output", output)) }
            }
            @if let Some(difference) = difference {
                div class="diff" {
                    h5 { "Difference: " del { "expected" } " " ins { "output" } }
                    pre { (difference) }
                }
            }
        }
    }
}

fn origin(stage: SampleStage) -> &'static str {
    match stage {
        SampleStage::Answer => "of the command",
        SampleStage::Judge => "of the evaluator",
        SampleStage::Delivery => "of the delivery",
    }
}

fn side(title: &str, content: &str) -> Markup {
    html! { div { h5 { (title) } pre { (harmless(content)) } } }
}

/// Returns both values for people. A text and a number that look the same are both shown as JSON.
fn side_by_side(expected: &Json, output: Option<&Json>) -> (String, Option<String>) {
    let shown = text(expected);
    match output {
        Some(output) if text(output) == shown && expected != output => {
            (shortened(&expected.to_string()), Some(shortened(&output.to_string())))
        }
        output => (shown, output.map(text)),
    }
}

/// Returns text unchanged and any other value as indented JSON.
fn text(value: &Json) -> String {
    match value {
        Json::String(text) => shortened(text),
        value => shortened(&serde_json::to_string_pretty(value).unwrap_or_else(|error| error.to_string())),
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(LONGEST_TEXT) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}… ({} characters in all)", &text[..end], text.chars().count()),
    }
}
