//! Evaluations that are killed repeatedly, at every step, reach the same report as one that is never killed.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use snakepit::evals::{Dataset, EvalJournal, EvalPlan, Evaluator, Experiment, SampleRecord};
use snakepit_proving::private_mount::{self, mount_tmpfs, remount, with_private_mounts};
use snakepit_proving::random::SeededRandom;
use snakepit_proving::{random, rounds, unproven};
use tempfile::TempDir;

use super::{LooperProcess, assert_no_runs, dir, worker};

/// The steps of an evaluation that asks directly, and roughly how often one life reaches each step at least.
const DIRECT: [(&str, u64); 8] = [
    ("head", 1),
    ("headtorn", 1),
    ("ask", 6),
    ("answered", 6),
    ("judged", 6),
    ("recordtorn", 6),
    ("recorded", 6),
    ("report", 1),
];

/// The steps of an evaluation whose samples travel through mailboxes.
const BY_LETTERS: [(&str, u64); 12] = [
    ("received", 3),
    ("handle", 4),
    ("ask", 4),
    ("answered", 4),
    ("judged", 4),
    ("handled", 4),
    ("reply", 4),
    ("replied", 4),
    ("recordtorn", 4),
    ("recorded", 4),
    ("noted", 4),
    ("report", 1),
];

/// The maximum number of kills of one evaluation before it is left alone.
const KILLS: usize = 4;

struct KilledEvaluation {
    dir: TempDir,
    verb: &'static str,
}

impl KilledEvaluation {
    fn new(verb: &'static str) -> Self {
        Self { dir: dir(), verb }
    }

    /// Runs one life. Returns its report, unless it was killed before.
    fn live(&self, fault: Option<&str>) -> Option<String> {
        let path = |name: &str| self.dir.path().join(name).to_string_lossy().into_owned();
        let (file, checkpoint, worker) = (path("mail"), path("checkpoint.jsonl"), worker());
        let words = match self.verb {
            "letters" => vec!["letters", &file, &checkpoint, &worker],
            verb => vec![verb, &checkpoint, &worker],
        };
        let (lines, was_killed) = LooperProcess::life(self.dir.path(), &words, fault);
        let report = lines.last().map(|line| timeless(line));
        assert_eq!(report.is_none(), was_killed, "{fault:?}");
        report
    }
}

/// Removes the times from a report.
fn timeless(report: &str) -> String {
    let mut report: Value = serde_json::from_str(report).expect("JSON");
    for experiment in report["experiments"].as_array_mut().expect("experiments") {
        experiment.as_object_mut().expect("an object").remove("latency_ms").expect("latencies");
    }
    report.to_string()
}

/// Kills evaluations until there were this many kills, equally often at each step.
fn kill_rounds(verb: &'static str, steps: &'static [(&'static str, u64)], all: usize) {
    let seed = random::below(u64::MAX);
    println!("seed {seed}");
    let mut random = SeededRandom::new(seed);
    let whole = KilledEvaluation::new(verb).live(None).expect("a report");
    let counts = &serde_json::from_str::<Value>(&whole).expect("JSON")["experiments"][0]["counts"];
    assert_eq!(counts["errors"], 2, "{whole}");
    let mut kills: BTreeMap<&str, usize> = steps.iter().map(|(step, _)| (*step, 0)).collect();
    let (mut done, mut evaluations) = (0, 0);
    while done < all {
        evaluations += 1;
        assert!(evaluations < 2 * all + 20, "too few are killed: {kills:?}");
        let evaluation = KilledEvaluation::new(verb);
        let mut report = None;
        for life in 0..KILLS {
            let (step, times) = steps
                .iter()
                // A checkpoint has only one head.
                .filter(|(step, _)| life == 0 || !step.starts_with("head"))
                .min_by_key(|(step, _)| kills[step])
                .expect("a step");
            report = evaluation.live(Some(&format!("{step}:{}", 1 + random.below(*times))));
            if report.is_some() {
                break;
            }
            *kills.get_mut(step).expect("a step") += 1;
            done += 1;
        }
        let report = report.or_else(|| evaluation.live(None)).expect("a report");
        assert_eq!(report, whole);
        // Asking again gives the same answer, and no command is called again.
        if evaluations == 1 {
            assert_eq!(evaluation.live(None).expect("a report"), whole);
        }
        assert_no_runs(evaluation.dir.path());
    }
    println!("{evaluations} evaluations, killed at {kills:?}");
    assert!(kills.values().all(|kills| *kills > 0), "no process was killed at some step: {kills:?}");
}

#[test]
fn rounds_of_kills_of_an_evaluation_change_nothing_in_its_report() {
    kill_rounds("eval", &DIRECT, rounds(100, 16));
}

#[test]
fn rounds_of_kills_of_an_evaluation_through_mailboxes_change_nothing_in_its_report() {
    kill_rounds("letters", &BY_LETTERS, rounds(72, 12));
}

#[test]
fn a_full_disk_fails_a_record_and_leaves_nothing_of_it() {
    if let Some(why) = private_mount::refusal() {
        return unproven(&why);
    }
    with_private_mounts(|| {
        let dir = dir();
        mount_tmpfs(dir.path(), "size=64k");
        let line = |id: usize| json!({ "id": id.to_string(), "input": 1, "expected": 1 }).to_string();
        let samples: Vec<String> = (0..60).map(line).collect();
        let dataset = Dataset::parse(&samples.join("\n")).expect("a data set");
        let plan =
            EvalPlan::new(dataset, Evaluator::Exact, vec![Experiment::new("it", "answer")]).expect("a plan");
        let record = |id: usize| -> SampleRecord {
            let outcome = json!({ "kind": "error", "stage": "answer", "message": "x".repeat(3_000) });
            let record =
                json!({ "experiment": "it", "sample": id.to_string(), "outcome": outcome, "latency_ms": 0 });
            serde_json::from_value(record).expect("a record")
        };
        let path = dir.path().join("checkpoint.jsonl");
        let mut journal = EvalJournal::create(&path, &plan).expect("a journal");
        let full = (0..60).find(|id| journal.add(record(*id)).is_err()).expect("a full disk");
        remount(dir.path(), "size=1m");
        for id in full..60 {
            assert!(journal.add(record(id)).expect("there is room"));
        }
        drop(journal);
        let found = EvalJournal::resume(&path, &plan).expect("all lines are whole").found();
        assert_eq!((found.records, found.torn, found.duplicates), (60, 0, 0));
    });
}
