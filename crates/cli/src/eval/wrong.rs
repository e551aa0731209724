//! The answers that are wrong, and the samples without a score, as a section of the page: with what was asked, what was expected and
//! what came, chosen by experiment and by kind, a few to a page. All of it without a script.

use std::fmt::Write as _;

use serde_json::Value as Json;
use snakepit::evals::{Journal, Outcome, Plan, Record, Sample, Stage};

use super::diff;
use super::html::escaped;

/// So many to a page.
const PER_PAGE: usize = 25;

/// So many pages of one kind and experiment at the most; the rest is in the checkpoint.
pub(super) const PAGES: usize = 20;

/// So much is shown of one text, in characters.
const LONGEST_TEXT: usize = 2_000;

/// How a sample went wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Failed,
    Error,
    Timeout,
    Missing,
}

pub(super) const KINDS: [Kind; 4] = [Kind::Failed, Kind::Error, Kind::Timeout, Kind::Missing];

impl Kind {
    /// Of a record that has not passed.
    fn of(record: Option<&Record>) -> Option<Self> {
        match record.map(|record| &record.outcome) {
            Some(Outcome::Scored { passed: true, .. }) => None,
            Some(Outcome::Scored { .. }) => Some(Self::Failed),
            Some(Outcome::Error { .. }) => Some(Self::Error),
            Some(Outcome::TimedOut { .. }) => Some(Self::Timeout),
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

/// What went wrong in one experiment in one way.
struct Group<'a> {
    experiment: usize,
    kind: Kind,
    /// The first ones, in the order of the data set.
    listed: Vec<(&'a Sample, Option<&'a Record>)>,
    all: usize,
}

/// All that went wrong.
pub(super) struct Answers<'a> {
    experiments: Vec<&'a str>,
    groups: Vec<Group<'a>>,
}

impl<'a> Answers<'a> {
    pub(super) fn of(plan: &'a Plan, journal: &'a Journal) -> Self {
        let experiments: Vec<&str> = plan.experiments().iter().map(|it| it.name.as_str()).collect();
        let mut groups = Vec::new();
        for (experiment, name) in experiments.iter().enumerate() {
            let mut of_kinds = KINDS.map(|kind| Group { experiment, kind, listed: Vec::new(), all: 0 });
            for sample in plan.dataset().samples() {
                let record = journal.get(name, &sample.id);
                let Some(kind) = Kind::of(record) else { continue };
                let Some(group) = of_kinds.iter_mut().find(|group| group.kind == kind) else { continue };
                group.all += 1;
                if group.listed.len() < PER_PAGE * PAGES {
                    group.listed.push((sample, record));
                }
            }
            groups.extend(of_kinds.into_iter().filter(|group| group.all > 0));
        }
        Self { experiments, groups }
    }

    pub(super) fn section(&self) -> String {
        if self.groups.is_empty() {
            return String::new();
        }
        let mut text = String::from("<h2>What went wrong</h2><div class=\"wrong\">");
        if self.experiments.len() > 1 {
            choice(&mut text, "x", "x-all", "All experiments");
            for (at, name) in self.experiments.iter().enumerate() {
                choice(&mut text, "x", &format!("x{at}"), name);
            }
            text.push_str("<span class=\"row-end\"></span>");
        }
        choice(&mut text, "k", "k-all", &format!("All kinds ({})", self.count(None)));
        for kind in KINDS.into_iter().filter(|kind| self.count(Some(*kind)) > 0) {
            let label = format!("{} ({})", kind.title(), self.count(Some(kind)));
            choice(&mut text, "k", &format!("k-{}", kind.class()), &label);
        }
        for group in &self.groups {
            group.show(&mut text, self.experiments[group.experiment]);
        }
        text.push_str("</div>");
        text
    }

    fn count(&self, kind: Option<Kind>) -> usize {
        self.groups.iter().filter(|it| kind.is_none_or(|kind| it.kind == kind)).map(|it| it.all).sum()
    }
}

/// One of the choices of a row; the first one, which leaves nothing out, is made already.
fn choice(text: &mut String, row: &str, id: &str, label: &str) {
    let checked = if id.ends_with("-all") { " checked" } else { "" };
    let _ = write!(
        text,
        "<input class=\"pick\" type=\"radio\" name=\"{row}\" id=\"{id}\"{checked}><label class=\"choice\" for=\"{id}\">{}</label>",
        escaped(label)
    );
}

impl Group<'_> {
    fn show(&self, text: &mut String, experiment: &str) {
        let (at, class) = (self.experiment, self.kind.class());
        let _ = write!(
            text,
            "<section class=\"group x{at} {class}\"><h3>{} in {}: {}</h3>",
            self.kind.title(),
            escaped(experiment),
            self.all
        );
        let pages = self.listed.chunks(PER_PAGE);
        if pages.len() > 1 {
            for page in 1..=pages.len() {
                let checked = if page == 1 { " checked" } else { "" };
                let _ = write!(
                    text,
                    "<input class=\"pick\" type=\"radio\" name=\"p{at}-{class}\" id=\"p{at}-{class}-{page}\"{checked}>"
                );
            }
            text.push_str("<nav class=\"pages-nav\">");
            for page in 1..=pages.len() {
                let (from, to) = ((page - 1) * PER_PAGE + 1, (page * PER_PAGE).min(self.listed.len()));
                let _ = write!(text, "<label for=\"p{at}-{class}-{page}\">{from}–{to}</label>");
            }
            text.push_str("</nav><div class=\"pages\">");
            for page in pages {
                text.push_str("<div class=\"page\">");
                articles(text, page);
                text.push_str("</div>");
            }
            text.push_str("</div>");
        } else {
            articles(text, &self.listed);
        }
        if self.all > self.listed.len() {
            let _ = write!(
                text,
                "<p class=\"note\">{} more are in the checkpoint.</p>",
                self.all - self.listed.len()
            );
        }
        text.push_str("</section>");
    }
}

fn articles(text: &mut String, listed: &[(&Sample, Option<&Record>)]) {
    for (sample, record) in listed {
        article(text, sample, *record);
    }
}

fn article(text: &mut String, sample: &Sample, record: Option<&Record>) {
    let (mark, message) = match record.map(|record| &record.outcome) {
        Some(Outcome::Scored { score, why, .. }) => (format!("score {score:.3}"), why.as_deref()),
        Some(Outcome::Error { stage, message } | Outcome::TimedOut { stage, message }) => {
            (blame(*stage).to_owned(), Some(message.as_str()))
        }
        None => ("there is no result".to_owned(), None),
    };
    let _ = write!(text, "<article><h4>{}<span>{mark}</span></h4>", escaped(&sample.id));
    if let Some(message) = message {
        let _ = write!(text, "<p class=\"message\">{}</p>", escaped(&cut(message)));
    }
    let output = record.and_then(|record| record.output.as_ref());
    let (expected, shown_output) = shown_beside(&sample.expected, output);
    text.push_str("<div class=\"sides\">");
    side(text, "Input", &shown(&sample.input));
    side(text, "Expected", &expected);
    if let Some(output) = &shown_output {
        side(text, "Output", output);
    }
    text.push_str("</div>");
    let failed = matches!(record.map(|it| &it.outcome), Some(Outcome::Scored { .. }));
    if let Some(marked) = shown_output.filter(|_| failed).and_then(|output| diff::marked(&expected, &output))
    {
        let _ = write!(
            text,
            "<div class=\"diff\"><h5>Difference: <del>expected</del> <ins>output</ins></h5><pre>{marked}</pre></div>"
        );
    }
    text.push_str("</article>");
}

fn blame(stage: Stage) -> &'static str {
    match stage {
        Stage::Answer => "of the command",
        Stage::Judge => "of the evaluator",
        Stage::Delivery => "of the delivery",
    }
}

fn side(text: &mut String, title: &str, content: &str) {
    let _ = write!(text, "<div><h5>{title}</h5><pre>{}</pre></div>", escaped(content));
}

/// Both as a person reads them; a text and a number that look the same are told apart.
fn shown_beside(expected: &Json, output: Option<&Json>) -> (String, Option<String>) {
    let Some(output) = output else { return (shown(expected), None) };
    let (one, other) = (shown(expected), shown(output));
    if one == other && expected != output {
        return (cut(&expected.to_string()), Some(cut(&output.to_string())));
    }
    (one, Some(other))
}

/// A text as it is, anything else as JSON, over several lines if it has parts.
fn shown(value: &Json) -> String {
    match value {
        Json::String(text) => cut(text),
        value => cut(&serde_json::to_string_pretty(value).unwrap_or_else(|error| error.to_string())),
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(LONGEST_TEXT) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}… ({} characters in all)", &text[..end], text.chars().count()),
    }
}
