//! Evaluations with real workers: what is counted, what is resumed, and what passes through mailboxes.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value as Json, json};
use snakepit::PoolOptions;
use snakepit::evals::{
    Dataset, EvalError, EvalJournal, EvalLoop, EvalPlan, EvalReport, Evaluation, Evaluator, Experiment,
    RemoteEvaluation, SampleOutcome, SampleStage, UnscoredKind,
};
use snakepit::loops::{LoopGroup, LoopScope, RunOptions, Runnable, Watchdog};
use snakepit::mailbox::{DeadLetterPolicy, DeadReason, Mailbox, MemoryMailbox, SendOptions, body};
use snakepit::policy::Breaker;
use snakepit::telemetry::{Event, Level, subscribe_to};

use crate::support::{Pit, SOON, at_once, soon, worker};

fn pool() -> PoolOptions {
    worker("evals.py").workers(2)
}

fn dataset(samples: &[Json]) -> Dataset {
    let lines: Vec<String> = samples.iter().map(Json::to_string).collect();
    Dataset::parse(&lines.join("\n")).expect("a data set")
}

fn doubles(count: i64) -> Vec<Json> {
    (0..count).map(|n| json!({ "id": format!("s{n}"), "input": n, "expected": 2 * n })).collect()
}

fn plan(samples: &[Json], evaluator: &str) -> EvalPlan {
    let evaluator = Evaluator::parse(evaluator).expect("an evaluator");
    EvalPlan::new(dataset(samples), evaluator, vec![Experiment::new("double", "double")]).expect("a plan")
}

async fn evaluate(pit: &Pit, plan: EvalPlan, journal: &mut EvalJournal) -> EvalReport {
    let evaluation = Evaluation::new(plan).concurrency(2);
    evaluation.run(pit, journal, |_| {}).await.expect("a report")
}

/// Removes from a report what differs between any two runs.
fn timeless(report: &EvalReport) -> Json {
    let mut report = serde_json::to_value(report).expect("JSON");
    for experiment in report["experiments"].as_array_mut().expect("experiments") {
        experiment.as_object_mut().expect("an object").remove("latency_ms").expect("latencies");
    }
    report
}

struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn checkpoint(&self) -> PathBuf {
        self.0.path().join("checkpoint.jsonl")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_and_timeouts_are_results_in_the_report() {
    let pit = Pit::start(pool()).await;
    let mut samples = doubles(4);
    samples[3]["expected"] = json!(7);
    for (at, input) in ["raise", "hang", "die"].into_iter().enumerate() {
        samples.insert(at, json!({ "id": input, "input": input, "expected": 1 }));
    }
    let plan = plan(&samples, "exact").timeout(Duration::from_secs(2));
    let report = evaluate(&pit, plan, &mut EvalJournal::in_memory()).await;
    let summary = &report.experiments[0];
    let counts = serde_json::to_value(summary.counts).expect("JSON");
    assert_eq!(counts, json!({ "passed": 3, "failed": 1, "errors": 2, "timeouts": 1, "missing": 0 }));
    assert!(report.complete);
    assert_eq!(summary.pass_rate, Some(3.0 / 7.0));
    assert_eq!((summary.scores[0], summary.scores[9]), (1, 3));
    let unscored: Vec<(&str, UnscoredKind)> =
        summary.unscored.iter().map(|it| (it.sample.as_str(), it.kind)).collect();
    assert_eq!(
        unscored,
        [("raise", UnscoredKind::Error), ("hang", UnscoredKind::Timeout), ("die", UnscoredKind::Error)]
    );
    assert_eq!(summary.unscored[0].message, "ValueError: cannot double that");
    assert_eq!(summary.unscored[1].message, "double did not answer within 2s");
    // The text names no particular worker: a report is the same, whichever worker died.
    assert_eq!(summary.unscored[2].message, "the worker of double exited with status 3");
    assert_eq!(summary.tokens.map(|it| (it.input, it.output)), Some((40, 4)));
    assert_eq!((summary.tokens_told, summary.latencies.len()), (4, 4));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejection_by_a_pool_policy_is_not_the_result_of_a_sample() {
    let breaker = Breaker::default().failures(2).open_for(Duration::from_millis(100));
    let pit = Pit::start(pool().restarts(at_once()).breaker(breaker)).await;
    let mut samples = doubles(8);
    for (at, sample) in samples.iter_mut().enumerate().take(4) {
        *sample = json!({ "id": format!("deadly {at}"), "input": "die", "expected": 1 });
    }
    let report = evaluate(&pit, plan(&samples, "exact"), &mut EvalJournal::in_memory()).await;
    let summary = &report.experiments[0];
    assert_eq!((summary.counts.passed, summary.counts.errors), (4, 4), "{:?}", summary.unscored);
    // Samples that are refused because the same question has killed other workers count as deaths, too.
    let died = "the worker of double exited with status 3";
    assert!(summary.unscored.iter().all(|it| it.message == died), "{:?}", summary.unscored);

    let narrow = Pit::start(worker("evals.py").workers(1).queue_limit(1)).await;
    let crowd = Evaluation::new(plan(&doubles(8), "exact")).concurrency(8);
    let mut journal = EvalJournal::in_memory();
    let ended = crowd.run(&narrow, &mut journal, |_| {}).await;
    assert!(matches!(ended, Err(EvalError::Call { .. })), "{ended:?}");
    assert!(journal.records().iter().all(snakepit::evals::SampleRecord::passed), "{:?}", journal.records());
}

#[tokio::test(flavor = "multi_thread")]
async fn experiments_are_compared_sample_by_sample() {
    let pit = Pit::start(pool()).await;
    let samples: Vec<Json> = (0..12).map(|n| json!({ "input": { "n": n }, "expected": n })).collect();
    let experiments = vec![
        Experiment::new("bad", "named"),
        Experiment::new("good", "named"),
        Experiment::new("also bad", "named").argument("bias", 5),
    ];
    let plan = EvalPlan::new(dataset(&samples), Evaluator::Exact, experiments).expect("a plan");
    let report = evaluate(&pit, plan, &mut EvalJournal::in_memory()).await;
    let rates: Vec<_> = report.experiments.iter().map(|it| it.pass_rate).collect();
    assert_eq!(rates, [Some(0.0), Some(1.0), Some(0.0)]);
    let [better, same] = &report.comparisons[..] else { panic!("{:?}", report.comparisons) };
    assert_eq!((better.pairs, better.only_other, better.only_baseline), (12, 12, 0));
    // 2 / 2^12, and twice that for two comparisons.
    assert!((better.pass_p - 2.0 / 4096.0).abs() < 1e-12, "{better:?}");
    assert!((better.pass_p_adjusted - 4.0 / 4096.0).abs() < 1e-12, "{better:?}");
    assert!((better.score_p - 2.0 / 4096.0).abs() < 1e-12, "{better:?}");
    assert_eq!((same.pass_p, same.pass_difference), (1.0, Some(0.0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_can_judge_and_its_failure_is_an_error_of_the_judge() {
    let pit = Pit::start(pool()).await;
    let mut samples = doubles(3);
    samples[1]["expected"] = json!("something else");
    samples[2]["expected"] = json!("broken judge");
    let mut journal = EvalJournal::in_memory();
    let report = evaluate(&pit, plan(&samples, "judge:grade"), &mut journal).await;
    let why = Some("0 gave 0".to_owned());
    assert_eq!(
        journal.get("double", "s0").map(|it| &it.outcome),
        Some(&SampleOutcome::Scored { score: 0.75, passed: true, why })
    );
    assert!(!journal.get("double", "s1").expect("a record").passed());
    let unscored = &report.experiments[0].unscored[0];
    assert_eq!(
        (unscored.stage, unscored.message.as_str()),
        (Some(SampleStage::Judge), "RuntimeError: the judge is out")
    );
    let either = plan(&samples[..2], "{\"any_of\": [\"exact\", \"judge:grade\"]}");
    let report = evaluate(&pit, either, &mut EvalJournal::in_memory()).await;
    assert_eq!(report.experiments[0].mean_score, Some(0.625));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_is_not_there_ends_the_evaluation_and_leaves_no_record() {
    let pit = Pit::start(pool()).await;
    let missing = vec![Experiment::new("x", "no_such_command")];
    let plan = EvalPlan::new(dataset(&doubles(3)), Evaluator::Exact, missing).expect("a plan");
    let mut journal = EvalJournal::in_memory();
    let ended = Evaluation::new(plan).run(&pit, &mut journal, |_| {}).await;
    assert!(matches!(ended, Err(EvalError::Call { .. })), "{ended:?}");
    assert!(journal.records().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_evaluation_cut_off_anywhere_resumes_to_the_same_report() {
    let pit = Pit::start(pool()).await;
    let home = Home::new();
    let mut samples = doubles(8);
    samples[2]["input"] = json!("raise");
    let plan = plan(&samples, "exact");
    let mut journal = EvalJournal::create(home.checkpoint(), &plan).expect("a journal");
    let whole = timeless(&evaluate(&pit, plan.clone(), &mut journal).await);
    drop(journal);
    let text = std::fs::read(home.checkpoint()).expect("the checkpoint");
    // As if the process had been killed after so many bytes: in the head, between lines, within lines.
    let lengths = (0..20).chain((20..=text.len()).step_by(text.len() / 23));
    for length in lengths.chain([text.len() - 1, text.len()]) {
        std::fs::write(home.checkpoint(), &text[..length]).expect("a file");
        let mut journal = EvalJournal::resume(home.checkpoint(), &plan).expect("a journal");
        let lines = text[..length].split(|byte| *byte == b'\n').count() - 1;
        assert_eq!(journal.found().records, lines.saturating_sub(1), "at {length}");
        let report = evaluate(&pit, plan.clone(), &mut journal).await;
        assert_eq!(timeless(&report), whole, "at {length}");
        drop(journal);
        let again = EvalJournal::resume(home.checkpoint(), &plan).expect("a journal");
        assert_eq!((again.records().len(), again.found().torn), (8, 0), "at {length}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_evaluation_resumes_where_it_was() {
    let pit = Pit::start(pool()).await;
    let home = Home::new();
    let plan = plan(&doubles(50), "exact");
    let mut journal = EvalJournal::create(home.checkpoint(), &plan).expect("a journal");
    let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let evaluation = Evaluation::new(plan.clone());
    tokio::select! {
        _ = evaluation.run(&pit, &mut journal, |progress| { let _ = told.send(progress.done); }) => panic!("too fast"),
        () = async { while heard.recv().await.expect("progress") < 5 {} } => {}
    }
    let done = journal.records().len();
    assert!((5..50).contains(&done), "{done}");
    assert!(!EvalReport::of(&plan, &journal).complete);
    drop(journal);
    assert!(matches!(EvalJournal::create(home.checkpoint(), &plan), Err(EvalError::Unfinished { .. })));
    let mut journal = EvalJournal::resume(home.checkpoint(), &plan).expect("a journal");
    assert_eq!(journal.found().records, done);
    let report = evaluate(&pit, plan.clone(), &mut journal).await;
    assert_eq!((report.complete, report.experiments[0].counts.passed), (true, 50));
    drop(journal);
    // A finished checkpoint does not block a new one.
    EvalJournal::create(home.checkpoint(), &plan).expect("a new one");
}

#[test]
fn a_checkpoint_of_something_else_is_refused_and_left_as_it_is() {
    let home = Home::new();
    let ours = plan(&doubles(3), "exact");
    drop(EvalJournal::create(home.checkpoint(), &ours).expect("a journal"));
    let text = std::fs::read(home.checkpoint()).expect("the checkpoint");
    for (other, words) in [
        (plan(&doubles(2), "exact"), "data set"),
        (plan(&doubles(3), "contains"), "evaluator"),
        (
            EvalPlan::new(dataset(&doubles(3)), Evaluator::Exact, vec![Experiment::new("x", "y")])
                .expect("a plan"),
            "experiments",
        ),
    ] {
        let refused = EvalJournal::resume(home.checkpoint(), &other).expect_err(words);
        assert!(refused.to_string().contains(words), "{refused}");
    }
    assert_eq!(std::fs::read(home.checkpoint()).expect("the checkpoint"), text);
    for precious in ["my notes, without a line's end", "my notes\n", "{\"id\": 1, \"input\": 2}\n"] {
        std::fs::write(home.checkpoint(), precious).expect("a file");
        for refused in
            [EvalJournal::create(home.checkpoint(), &ours), EvalJournal::resume(home.checkpoint(), &ours)]
        {
            assert!(matches!(refused, Err(EvalError::OtherCheckpoint { .. })), "{refused:?}");
        }
        assert_eq!(std::fs::read_to_string(home.checkpoint()).expect("the file"), precious);
    }
}

#[test]
fn a_damaged_line_is_named_and_one_evaluation_writes_at_a_time() {
    let home = Home::new();
    let plan = plan(&doubles(3), "exact");
    let journal = EvalJournal::create(home.checkpoint(), &plan).expect("a journal");
    let second = EvalJournal::resume(home.checkpoint(), &plan);
    assert!(matches!(second, Err(EvalError::Locked { .. })), "{second:?}");
    drop(journal);
    append(&home.checkpoint(), "{\"experiment\": \"double\", \"sam\n");
    let damaged = EvalJournal::resume(home.checkpoint(), &plan);
    assert!(matches!(damaged, Err(EvalError::Corrupt { line: 2, .. })), "{damaged:?}");
}

/// A checkpoint in the format of version 1. It must be readable for as long as such files exist.
const VERSION_1: &str = r#"{"snakepit_eval":1,"dataset":"DATASET","samples":3,"evaluator":"exact","experiments":[{"name":"double","command":"double"}]}
{"experiment":"double","sample":"s0","outcome":{"kind":"scored","score":1.0,"passed":true},"output":0,"latency_ms":1.25,"tokens":{"input":10,"output":1}}
{"experiment":"double","sample":"s0","outcome":{"kind":"scored","score":0.0,"passed":false},"output":9,"latency_ms":1.0}
{"experiment":"double","sample":"s1","outcome":{"kind":"timed_out","stage":"answer","message":"slow"},"latency_ms":2000.0}
{"experiment":"double","sample":"s2","outcome":{"kind":"error","stage":"judge","message":"no"},"output":4,"latency_ms":1.0}
"#;

#[test]
fn a_checkpoint_of_version_1_is_read_and_the_first_result_of_a_sample_holds() {
    let home = Home::new();
    let plan = plan(&doubles(3), "exact");
    let text = VERSION_1.replace("DATASET", plan.dataset().fingerprint());
    std::fs::write(home.checkpoint(), text).expect("a file");
    let journal = EvalJournal::resume(home.checkpoint(), &plan).expect("a journal");
    assert_eq!((journal.found().records, journal.found().duplicates), (3, 1));
    let counts = EvalReport::of(&plan, &journal).experiments[0].counts;
    assert_eq!((counts.passed, counts.timeouts, counts.errors, counts.missing), (1, 1, 1, 0));
}

#[test]
fn errors_and_timeouts_are_repeated_on_request_even_after_a_kill() {
    let home = Home::new();
    let plan = plan(&doubles(3), "exact");
    let text = VERSION_1.replace("DATASET", plan.dataset().fingerprint());
    std::fs::write(home.checkpoint(), text).expect("a file");
    let missing = |journal: &EvalJournal| EvalReport::of(&plan, journal).experiments[0].counts.missing;
    let mut journal = EvalJournal::resume(home.checkpoint(), &plan).expect("a journal");
    assert_eq!(missing(&journal), 0, "by itself nothing is asked again");
    assert_eq!(journal.retry_errors().expect("written"), 2);
    assert_eq!(missing(&journal), 2);
    drop(journal);
    // Killed here: the samples that were to be asked again still are.
    let mut journal = EvalJournal::resume(home.checkpoint(), &plan).expect("a journal");
    assert_eq!((journal.found().records, missing(&journal)), (1, 2));
    assert_eq!(journal.retry_errors().expect("written"), 0);
    let again = json!({
        "experiment": "double", "sample": "s1", "latency_ms": 1.0, "output": 2,
        "outcome": { "kind": "scored", "score": 1.0, "passed": true },
    });
    assert!(journal.add(serde_json::from_value(again).expect("a record")).expect("written"));
    drop(journal);
    let journal = EvalJournal::resume(home.checkpoint(), &plan).expect("a journal");
    let counts = EvalReport::of(&plan, &journal).experiments[0].counts;
    assert_eq!((counts.passed, counts.timeouts, counts.errors, counts.missing), (2, 0, 0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_takes_more_experiments_and_none_is_left_out_silently() {
    let pit = Pit::start(pool()).await;
    let home = Home::new();
    let of = |names: &[&str]| {
        let experiments = names.iter().map(|name| Experiment::new(*name, "named")).collect();
        EvalPlan::new(dataset(&doubles(4)), Evaluator::Exact, experiments).expect("a plan")
    };
    let mut journal = EvalJournal::create(home.checkpoint(), &of(&["good"])).expect("a journal");
    evaluate(&pit, of(&["good"]), &mut journal).await;
    drop(journal);
    let both = of(&["other", "good"]);
    let mut journal = EvalJournal::resume(home.checkpoint(), &both).expect("more experiments");
    assert_eq!(journal.found().records, 4);
    let report = evaluate(&pit, both.clone(), &mut journal).await;
    drop(journal);
    assert!(report.complete);
    assert_eq!(report.comparisons.len(), 1);
    let whole = evaluate(&pit, both.clone(), &mut EvalJournal::in_memory()).await;
    assert_eq!(timeless(&report), timeless(&whole));
    let again = EvalJournal::resume(home.checkpoint(), &both).expect("a journal");
    assert_eq!(again.found().records, 8);
    drop(again);
    let fewer = EvalJournal::resume(home.checkpoint(), &of(&["other"])).expect_err("one is missing");
    assert!(fewer.to_string().contains("good is missing"), "{fewer}");
}

fn append(path: &Path, text: &str) {
    let mut file = std::fs::OpenOptions::new().append(true).open(path).expect("the file");
    file.write_all(text.as_bytes()).expect("written");
}

/// Returns two mailboxes of one office, so that replies find their way.
fn mailboxes() -> (Arc<dyn Mailbox>, Arc<dyn Mailbox>) {
    let policy = DeadLetterPolicy::new().max_deliveries(1);
    let requests = MemoryMailbox::with_policy("samples", policy).expect("a mailbox");
    let replies = requests.mailboxes().mailbox("results");
    (Arc::new(requests), Arc::new(replies))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_evaluates_samples_of_a_mailbox_and_the_report_is_the_same() {
    let pit = Pit::start(pool()).await;
    let mut samples = doubles(25);
    samples[3]["input"] = json!("raise");
    let plan = plan(&samples, "exact");
    let direct = evaluate(&pit, plan.clone(), &mut EvalJournal::in_memory()).await;
    let (requests, replies) = mailboxes();
    let evals = EvalLoop::new("evals", Arc::clone(&requests), &pit, Evaluator::Exact).concurrency(2);
    let scope = LoopScope::start(Arc::new(evals), RunOptions::new());
    let mut journal = EvalJournal::in_memory();
    let report = RemoteEvaluation::new(plan, requests.clone(), replies.clone())
        .run(&mut journal, |_| {})
        .await
        .expect("a report");
    assert_eq!(timeless(&report), timeless(&direct));
    assert!(scope.end(SOON).await);
    let left = [requests.count().await, replies.count().await].map(|it| it.expect("a count"));
    assert!(left.iter().all(|it| it.visible + it.in_flight + it.dead == 0), "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn e1_results_return_missing_ones_are_counted_and_a_difference_is_tested() {
    let pit = Pit::start(pool()).await;
    let samples: Vec<Json> = (0..12).map(|n| json!({ "input": { "n": n }, "expected": n })).collect();
    let experiments = vec![Experiment::new("bad", "named"), Experiment::new("good", "named")];
    let plan = EvalPlan::new(dataset(&samples), Evaluator::Exact, experiments).expect("a plan");
    let (requests, replies) = mailboxes();
    let mut journal = EvalJournal::in_memory();
    let post =
        |patience| RemoteEvaluation::new(plan.clone(), requests.clone(), replies.clone()).patience(patience);
    let nobody = post(Duration::from_millis(50)).run(&mut journal, |_| {}).await.expect("a report");
    assert!(!nobody.complete, "nobody has answered, and the report says so");
    assert!(nobody.experiments.iter().all(|it| it.counts.missing == 12 && it.pass_rate.is_none()));
    let sent = requests.peek(100).await.expect("messages");
    assert_eq!(sent.len(), 24);
    assert!(sent.iter().all(|request| request.reply_to.as_deref() == Some("results")));
    let evals = EvalLoop::new("evals", Arc::clone(&requests), &pit, Evaluator::Exact).concurrency(2);
    let scope = LoopScope::start(Arc::new(evals), RunOptions::new());
    let report = post(SOON).run(&mut journal, |_| {}).await.expect("a report");
    assert!(report.complete);
    let [comparison] = &report.comparisons[..] else { panic!("{:?}", report.comparisons) };
    assert_eq!((comparison.pairs, comparison.only_other), (12, 12));
    assert!(comparison.pass_p_adjusted < 0.05 && comparison.score_p_adjusted < 0.05, "{comparison:?}");
    assert!(scope.end(SOON).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn l10_the_watchdog_reports_a_stuck_evaluation_loop() {
    let mut events = subscribe_to(Level::Warn);
    let pit = Pit::start(pool()).await;
    let plan = plan(&[json!({ "id": "stuck", "input": "hang", "expected": 1 })], "exact");
    let (requests, replies) = mailboxes();
    let evals = Arc::new(EvalLoop::new("evals", Arc::clone(&requests), &pit, Evaluator::Exact));
    let limit = Duration::from_millis(200);
    let watchdog = Watchdog::new().message_limit(limit).liveness_limit(limit);
    let group = Arc::new(LoopGroup::new("group").with(evals.clone()).watchdog(watchdog));
    let scope = LoopScope::start(Arc::clone(&group), RunOptions::new());
    soon("it runs", evals.control().until_running()).await;
    let idle = evals.heartbeat().age();
    let sender = RemoteEvaluation::new(plan, requests, replies).patience(Duration::from_millis(50));
    sender.run(&mut EvalJournal::in_memory(), |_| {}).await.expect("a report");
    let told = async {
        loop {
            if let Some(Event::LoopStuck { name, message_id: message, stack, .. }) = events.next().await {
                return (name.to_string(), message.is_some(), stack);
            }
        }
    };
    let (name, has_message, stack) = soon("it is told", told).await;
    assert_eq!((&*name, has_message), ("evals", true));
    // The stack of its worker is included.
    assert!(stack.as_deref().is_some_and(|stack| stack.contains("double")), "{stack:?}");
    assert!(!group.is_alive());
    // The loop turns, whatever its handlers do.
    assert!(idle < SOON && evals.heartbeat().age() < SOON);
    group.stop_now();
    soon("it ends", group.control().until_stopped()).await;
    drop(scope);
    pit.end_now().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_that_comes_twice_is_counted_once_and_one_that_never_comes_is_missing() {
    let plan = plan(&doubles(3), "exact");
    let (requests, replies) = mailboxes();
    let known: Vec<Json> =
        VERSION_1.lines().skip(1).map(|line| serde_json::from_str(line).expect("JSON")).collect();
    for record in &known[..3] {
        replies.send(body(record).expect("a body"), SendOptions::new()).await.expect("sent");
    }
    let mut journal = EvalJournal::in_memory();
    let patience = Duration::from_millis(100);
    let report = RemoteEvaluation::new(plan, requests.clone(), replies.clone())
        .patience(patience)
        .run(&mut journal, |_| {})
        .await
        .expect("a report");
    let counts = report.experiments[0].counts;
    assert_eq!((counts.passed, counts.timeouts, counts.missing), (1, 1, 1));
    assert!(!report.complete);
    assert_eq!(report.experiments[0].unscored[1].kind, UnscoredKind::Missing);
    // Only the sample without a result was sent, and it names the mailbox for the reply.
    let [request] = &requests.peek(10).await.expect("messages")[..] else { panic!("one request") };
    assert_eq!(request.reply_to.as_deref(), Some("results"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_was_given_up_is_an_error_and_one_without_a_reply_is_buried() {
    let pit = Pit::start(pool()).await;
    let (requests, replies) = mailboxes();
    let missing = vec![Experiment::new("x", "no_such_command")];
    let plan = EvalPlan::new(dataset(&doubles(2)), Evaluator::Exact, missing).expect("a plan");
    requests.send(b"{\"nonsense\": 1}".to_vec(), SendOptions::new().reply_to("results")).await.expect("sent");
    let lonely =
        json!({ "experiment": { "name": "d", "command": "double" }, "sample": { "id": "a", "input": 1 } });
    requests.send(body(&lonely).expect("a body"), SendOptions::new()).await.expect("sent");
    let evals = EvalLoop::new("evals", Arc::clone(&requests), &pit, Evaluator::Exact)
        .policy(DeadLetterPolicy::new().max_deliveries(1));
    let scope = LoopScope::start(Arc::new(evals), RunOptions::new());
    let mut journal = EvalJournal::in_memory();
    let report = RemoteEvaluation::new(plan, requests.clone(), replies)
        .run(&mut journal, |_| {})
        .await
        .expect("a report");
    assert!(report.complete);
    assert_eq!(report.experiments[0].counts.errors, 2);
    assert!(report.experiments[0].unscored.iter().all(|it| it.stage == Some(SampleStage::Delivery)));
    assert!(scope.runnable().running());
    assert!(scope.end(SOON).await);
    let reasons: Vec<DeadReason> =
        requests.dead_letters(10).await.expect("letters").into_iter().map(|it| it.reason).collect();
    assert_eq!(reasons.len(), 4, "{reasons:?}");
    assert!(matches!(&reasons[0], DeadReason::Undecodable { .. }), "{reasons:?}");
    assert!(
        matches!(&reasons[1], DeadReason::Failed { error } if error.contains("NoReplyTo")),
        "{reasons:?}"
    );
}
