//! `snakepit eval`: tables, JSON, checkpoints and progress.
//!
//! About `crates/cli/src/eval/run.rs`, `crates/cli/src/eval/text_report.rs` and
//! `crates/evals/src/report/evaluation_report.rs`.

use std::path::Path;

use rustix::process::Signal;
use serde_json::{Value as Json, json};

use super::fixture::{EvalFixture, SAMPLES, assert_refused, timeless};
use crate::support::pty::Pty;
use crate::support::{MOMENT, finish, worker};

#[test]
fn a_table_shows_experiments_their_comparison_and_what_has_no_score() {
    let fixture = EvalFixture::new();
    let done = finish(&mut fixture.eval(&[
        "--experiment",
        "plain",
        "--experiment",
        "careless",
        "--experiment",
        "zero=constant",
        "--experiment",
        "biased={\"arguments\": {\"bias\": 1}}",
    ]));
    done.assert_status(0);
    let row = |name: &str| {
        let line =
            done.stdout.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{done:?}"));
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(row("plain")[1..3], ["87.5 % (14)", "64.0 %–96.5 %"]);
    assert_eq!(row("plain")[5..9], ["0", "1", "1", "0"]);
    assert_eq!(row("careless")[1], "43.8 % (7)");
    assert_eq!(row("zero")[1], "6.2 % (1)");
    assert_eq!(row("biased")[1], "0.0 % (0)");
    // Seven answers differ, all in one direction: 2 / 2^7. The other two comparisons are clearer, so the correction for
    // several comparisons does not raise this one.
    assert_eq!(row("careless against plain")[1..3], ["-43.8 points", "0.0156"]);
    assert!(done.stdout.contains("s3  error: ValueError: <three> is too much"), "{}", done.stdout);
    assert!(done.stdout.contains("s6  timeout: answer did not answer within 2s"), "{}", done.stdout);
    assert!(done.stderr.contains("results: data.eval.jsonl"), "{done:?}");
    fixture.scene.assert_clean();
}

#[test]
fn the_report_as_json_has_all_numbers_and_how_they_were_made() {
    let fixture = EvalFixture::new();
    let report = fixture.report(&["--evaluator", "judge:grade"]);
    let summary = &report["experiments"][0];
    assert_eq!(
        summary["counts"],
        json!({ "passed": 14, "failed": 0, "errors": 1, "timeouts": 1, "missing": 0 })
    );
    assert_eq!(summary["tokens"], json!({ "input": 111, "output": 14 }));
    assert_eq!(summary["scores"], json!([0, 0, 0, 0, 0, 0, 0, 0, 0, 14]));
    assert!(summary["latency_ms"]["p99"].as_f64().is_some_and(|time| time > 0.0), "{summary}");
    assert_eq!((&report["complete"], &report["samples"]), (&json!(true), &json!(SAMPLES)));
    assert!(report["methods"]["pass_interval"].as_str().is_some_and(|text| text.contains("Wilson")));
    // The first evaluation is complete, so a second run starts over.
    assert_eq!(timeless(fixture.report(&["--evaluator", "judge:grade"])), timeless(report));
    fixture.scene.assert_clean();
}

#[test]
fn an_evaluation_killed_repeatedly_resumes_to_the_same_report() {
    let experiments = ["--experiment", "plain", "--experiment", "careless"];
    let untroubled = EvalFixture::new();
    let expected = timeless(untroubled.report(&experiments));
    let fixture = EvalFixture::new();
    let resume = [&experiments[..], &["--resume"]].concat();
    for sample in [2, 5, 9, 15] {
        let running = fixture.stopped_at(sample, &resume);
        running.signal(Signal::KILL);
        running.finish();
        fixture.scene.assert_all_end_within(MOMENT);
        assert_eq!(fixture.results(), 2 * sample as usize, "everything before sample {sample} is kept");
    }
    // The last line was incomplete when the evaluation was killed.
    let text = fixture.read("data.eval.jsonl");
    fixture.write("data.eval.jsonl", &text[..text.len() - 9]);
    let refused = finish(&mut fixture.eval(&experiments));
    assert_refused(&refused, 1, &["unfinished evaluation: 29 of 32 results", "--resume"]);
    assert_eq!(timeless(fixture.report(&resume)), expected);
    // Now nothing is left to do, and no worker is asked.
    assert_eq!(timeless(fixture.report(&resume)), expected);
    assert_eq!(fixture.results(), 32);
    fixture.scene.assert_clean();
}

#[test]
fn an_interrupted_evaluation_says_how_to_resume() {
    let fixture = EvalFixture::new();
    let running = fixture.stopped_at(4, &[]);
    running.signal(Signal::INT);
    let done = running.finish();
    assert_refused(&done, 130, &["interrupted: 4 of 16 results are in data.eval.jsonl", "--resume"]);
    fixture.scene.assert_nothing_is_alive();
    let done = finish(&mut fixture.eval(&["--resume"]));
    done.assert_status(0);
    assert!(done.stderr.contains("4 of 16 results exist already"), "{done:?}");
    fixture.scene.assert_clean();
}

#[test]
fn the_report_page_needs_no_network_and_escapes_all_data() {
    let fixture = EvalFixture::new();
    let more = ["--experiment", "plain", "--experiment", "<script>careless", "--html", "report.html"];
    fixture.report(&more);
    let page = fixture.read("report.html");
    for needle in ["http:", "https:", "src=", "href", "<link", "@import", "url(", "<script"] {
        assert!(!page.contains(needle), "{needle}");
    }
    for needle in [
        "prefers-color-scheme:dark",
        "&lt;script&gt;careless",
        "&lt;three&gt; is too much",
        "Distribution of scores",
        "Latency",
    ] {
        assert!(page.contains(needle), "{needle}");
    }
    assert_eq!(page.matches("<svg").count(), 4);
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
    fixture.scene.assert_clean();
}

#[test]
fn a_terminal_shows_the_progress_of_an_evaluation() {
    let fixture = EvalFixture::new();
    let program = env!("CARGO_BIN_EXE_snakepit");
    let (data, script) = (fixture.path("data.jsonl"), worker("eval.py"));
    let text = |path: &Path| path.to_str().expect("text").to_owned();
    let [data, script, state] = [text(&data), text(&script), text(fixture.scene.state_dir())];
    let line = format!(
        "{program} eval {data} -w {script} --command answer --workers 1 --timeout 2s --state-dir {state}"
    );
    let words: Vec<&str> = line.split(' ').collect();
    let mut pty = Pty::start(&fixture.scene, &words);
    pty.expect("░ 2/16  2 passed");
    pty.expect("3 passed, 1 error");
    pty.expect("1 error, 1 timeout");
    pty.expect("16/16  14 passed");
    pty.expect("87.5 % (14)");
    assert!(pty.end().success());
    fixture.scene.assert_clean();
}

#[test]
fn an_invalid_evaluation_is_refused_before_a_worker_starts() {
    let fixture = EvalFixture::new();
    for (more, words) in [
        (vec!["--evaluator", "exakt"], vec!["exakt is not an evaluator", "exact, contains"]),
        (vec!["--evaluator", "regex:("], vec!["regex:( is not an evaluator"]),
        (
            vec!["--experiment", "a", "--experiment", "a"],
            vec!["experiment a", "two experiments have this name"],
        ),
        (vec!["--experiment", "a={\"comand\": 1}"], vec!["experiment a", "comand"]),
    ] {
        assert_refused(&finish(&mut fixture.eval(&more)), 2, &words);
    }
    for (text, words, advice) in [
        ("{\"id\": 1}\n", "line 1 of the data set: it has no \"input\"", "write one sample per line"),
        ("{\"input\": 1}\nx\n", "line 2 of the data set", "write one sample per line"),
        ("\n", "no samples", "write one JSON object with an input per line"),
    ] {
        fixture.write("data.jsonl", text);
        assert_refused(&finish(&mut fixture.eval(&[])), 2, &[words, advice]);
    }
    std::fs::remove_file(fixture.path("data.jsonl")).expect("removed");
    assert_refused(&finish(&mut fixture.eval(&[])), 2, &["cannot read data.jsonl"]);
    assert!(!fixture.path("data.eval.jsonl").exists(), "nothing is left behind");
    fixture.scene.assert_clean();
}

#[test]
fn an_unknown_command_is_an_error_and_not_a_result() {
    let fixture = EvalFixture::new();
    let done = finish(&mut fixture.eval(&["--experiment", "x=anwser"]));
    assert_refused(&done, 1, &["experiment x cannot continue", "anwser"]);
    assert_eq!(fixture.results(), 0);
    // The failed evaluation does not block the next one.
    let report = fixture.report(&["--limit", "3", "--evaluator", "numeric:1", "--evaluator", "exact"]);
    assert_eq!(report["experiments"][0]["counts"]["passed"], 3);
    fixture.scene.assert_clean();
}

#[test]
fn errors_and_timeouts_are_repeated_only_on_request() {
    let fixture = EvalFixture::new();
    let counts = |report: &Json| report["experiments"][0]["counts"].clone();
    let ill = json!({ "passed": 14, "failed": 0, "errors": 1, "timeouts": 1, "missing": 0 });
    assert_eq!(counts(&fixture.report(&[])), ill);
    assert_refused(&finish(&mut fixture.eval(&["--retry-errors"])), 2, &["--resume"]);
    let well = |more: &[&str]| {
        let done = finish(fixture.eval(&[&["--json", "--resume"], more].concat()).env("EVAL_IS_WELL", "1"));
        let report: Json = serde_json::from_str(&done.assert_status(0).stdout).expect("JSON");
        (counts(&report), done.stderr)
    };
    assert_eq!(well(&[]).0, ill);
    let (healed, said) = well(&["--retry-errors"]);
    assert_eq!(healed, json!({ "passed": 16, "failed": 0, "errors": 0, "timeouts": 0, "missing": 0 }));
    assert!(said.contains("16 of 16 results exist already; 2 of them have no score"), "{said}");
    // Nothing is left to ask again, and no worker is started.
    assert_eq!(well(&["--retry-errors"]).0, healed);
    fixture.scene.assert_clean();
}

#[test]
fn experiments_are_added_to_a_checkpoint_and_the_old_ones_are_not_asked_again() {
    let fixture = EvalFixture::new();
    fixture.report(&["--experiment", "plain"]);
    let both = ["--resume", "--experiment", "plain", "--experiment", "zero=constant"];
    let done = finish(&mut fixture.eval(&both));
    done.assert_status(0);
    assert!(done.stderr.contains("16 of 32 results exist already"), "{done:?}");
    assert!(done.stdout.contains("zero against plain"), "{done:?}");
    let fewer = finish(&mut fixture.eval(&["--resume", "--experiment", "zero=constant"]));
    assert_refused(&fewer, 1, &["plain is missing now", "--checkpoint"]);
    fixture.scene.assert_clean();
}

#[test]
fn an_experiment_may_name_a_pool_of_the_configuration() {
    let fixture = EvalFixture::new();
    std::fs::copy(worker("eval.py"), fixture.path("eval.py")).expect("a worker");
    let pool = |name: &str, more: &str| format!("[pool.{name}]\nworker = \"eval.py\"\nworkers = 1\n{more}\n");
    let config = pool("first", "") + &pool("second", "env = { EVAL_IS_WELL = \"1\" }");
    fixture.write("pools.toml", &config);
    let mut eval = fixture.scene.verb("eval");
    eval.args(["data.jsonl", "-c", "pools.toml", "--command", "answer", "--timeout", "2s", "--json"]);
    eval.args(["--experiment", "ill", "--experiment", "well={\"pool\": \"second\"}"]);
    let done = finish(eval.current_dir(fixture.home.path()));
    let report: Json = serde_json::from_str(&done.assert_status(0).stdout).expect("JSON");
    let passed = |at: usize| report["experiments"][at]["counts"]["passed"].clone();
    assert_eq!((passed(0), passed(1)), (json!(14), json!(16)));
    // An error in the configuration is reported with its place before anything starts.
    fixture.write("pools.toml", "[pool.first]\nworkre = \"eval.py\"\n");
    let mut eval = fixture.scene.verb("eval");
    eval.args(["data.jsonl", "-c", "pools.toml", "--command", "answer"]).current_dir(fixture.home.path());
    assert_refused(&finish(&mut eval), 2, &["pools.toml", "workre"]);
    fixture.scene.assert_clean();
}
