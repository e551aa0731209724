//! Evaluations of a loop's handler and of functions, beside the running loop.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value as Json, json};
use snakepit::evals::{
    Dataset, EvalJournal, EvalLoop, EvalPlan, EvalReport, EvalRequest, Evaluation, Evaluator, Experiment,
    RemoteEvaluation, Responder, SampleStage, UnscoredKind,
};
use snakepit::loops::{HandlerFailure, LoopGroup, LoopScope, MainLoop, RunOptions, Runnable};
use snakepit::mailbox::{Mailbox, MemoryMailbox, ReceiveOptions, SendOptions, TypedMessage, body};

use crate::support::{SOON, soon};

#[derive(Deserialize)]
struct Sum {
    a: i64,
    b: i64,
    #[serde(default)]
    bias: i64,
}

/// Three mailboxes of one office: requests of users, samples of an evaluation, and replies.
struct Office {
    requests: Arc<dyn Mailbox>,
    samples: Arc<dyn Mailbox>,
    results: Arc<dyn Mailbox>,
    replies: Arc<dyn Mailbox>,
}

impl Office {
    fn new() -> Self {
        let requests = MemoryMailbox::new("requests");
        let open = |name: &str| -> Arc<dyn Mailbox> { Arc::new(requests.mailboxes().mailbox(name)) };
        let (samples, results, replies) = (open("samples"), open("results"), open("replies"));
        Self { requests: Arc::new(requests), samples, results, replies }
    }
}

/// Returns a service that adds, cannot add to 13, and panics at 14.
fn adder(office: &Office, handled: &Arc<AtomicUsize>) -> Arc<MainLoop> {
    let handled = Arc::clone(handled);
    let handler = move |request: TypedMessage<Sum>| {
        handled.fetch_add(1, Ordering::SeqCst);
        async move {
            let Sum { a, b, bias } = request.value;
            assert!(a != 14, "fourteen is not for me");
            if a == 13 {
                return Err(HandlerFailure::new("Unlucky", "it is 13"));
            }
            Ok(a + b + bias)
        }
    };
    Arc::new(MainLoop::new("adder", Arc::clone(&office.requests), handler).concurrency(2))
}

fn sums(count: i64) -> Dataset {
    let line =
        |n: i64| json!({ "id": format!("s{n}"), "input": { "a": n, "b": 1 }, "expected": n + 1 }).to_string();
    Dataset::parse(&(0..count).map(line).collect::<Vec<_>>().join("\n")).expect("a data set")
}

fn plan() -> EvalPlan {
    let experiments = vec![Experiment::named("plain"), Experiment::named("biased").argument("bias", 1)];
    EvalPlan::new(sums(16), Evaluator::Exact, experiments).expect("a plan")
}

fn assert_is_right(report: &EvalReport) {
    assert!(report.complete);
    let counts: Vec<Json> =
        report.experiments.iter().map(|it| serde_json::to_value(it.counts).expect("JSON")).collect();
    assert_eq!(counts[0], json!({ "passed": 14, "failed": 0, "errors": 2, "timeouts": 0, "missing": 0 }));
    assert_eq!(counts[1], json!({ "passed": 0, "failed": 14, "errors": 2, "timeouts": 0, "missing": 0 }));
    let errors: Vec<(Option<SampleStage>, &str)> =
        report.experiments[0].unscored.iter().map(|it| (it.stage, it.message.as_str())).collect();
    let stage = Some(SampleStage::Answer);
    assert_eq!(errors, [(stage, "Unlucky: it is 13"), (stage, "panic: fourteen is not for me")]);
    assert_eq!(report.comparisons[0].only_baseline, 14);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_main_loop_and_an_eval_loop_over_it_run_in_one_group_and_the_report_is_right_after_its_shutdown() {
    let (office, handled) = (Office::new(), Arc::new(AtomicUsize::new(0)));
    let main = adder(&office, &handled);
    let responder = Responder::main_loop(Arc::clone(&main));
    let evals = EvalLoop::over("evals", Arc::clone(&office.samples), &responder, Evaluator::Exact);
    let evals = Arc::new(evals.expect("a loop").concurrency(3));
    let group = Arc::new(LoopGroup::new("service").with(main.clone()).with(evals.clone()));
    let scope = LoopScope::start(Arc::clone(&group), RunOptions::new());
    soon("both run", main.control().until_running()).await;
    soon("both run", evals.control().until_running()).await;
    // The service serves its users meanwhile.
    for n in 0..10 {
        let request = body(&json!({ "a": n, "b": n })).expect("a body");
        office.requests.send(request, SendOptions::new().reply_to("replies")).await.expect("sent");
    }
    let mut journal = EvalJournal::in_memory();
    let correspondence =
        RemoteEvaluation::new(plan(), Arc::clone(&office.samples), Arc::clone(&office.results));
    let report = correspondence.patience(SOON).run(&mut journal, |_| {}).await.expect("a report");
    let mut answers = Vec::new();
    while answers.len() < 10 {
        let receive = ReceiveOptions::new().max_messages(10).wait(Duration::from_secs(20));
        for reply in office.replies.receive(receive).await.expect("replies") {
            answers.push(reply.read::<i64>().expect("a number"));
            reply.ack().await.expect("acknowledged");
        }
    }
    assert!(scope.end(SOON).await, "both end in time");
    assert!(!main.running() && !evals.running());
    answers.sort_unstable();
    assert_eq!(answers, (0..10).map(|n| 2 * n).collect::<Vec<i64>>());
    assert_eq!(handled.load(Ordering::SeqCst), 10 + 32, "each request and each sample is handled once");
    assert_is_right(&report);
    assert_eq!(
        serde_json::to_value(EvalReport::of(&plan(), &journal)).ok(),
        serde_json::to_value(&report).ok()
    );
    for mailbox in [&office.requests, &office.samples, &office.results, &office.replies] {
        let left = mailbox.count().await.expect("a count");
        assert_eq!((left.visible, left.in_flight, left.dead), (0, 0, 0), "{}", mailbox.name());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn samples_that_were_not_begun_at_a_shutdown_are_evaluated_by_the_next_life_of_the_service() {
    let (office, handled) = (Office::new(), Arc::new(AtomicUsize::new(0)));
    let mut journal = EvalJournal::in_memory();
    let send = |patience| {
        RemoteEvaluation::new(plan(), Arc::clone(&office.samples), Arc::clone(&office.results))
            .patience(patience)
    };
    // The service is not running yet: all samples wait, and the report says that they are missing.
    let early = send(Duration::from_millis(20)).run(&mut journal, |_| {}).await.expect("a report");
    assert!(!early.complete);
    let life = async |receives: u64| {
        let main = adder(&office, &handled);
        let responder = Responder::main_loop(Arc::clone(&main));
        let evals = EvalLoop::over("evals", Arc::clone(&office.samples), &responder, Evaluator::Exact);
        let evals = Arc::new(evals.expect("a loop"));
        let options = RunOptions::new().max_iterations(receives).wait(Duration::ZERO);
        let group = LoopGroup::new("service").with(main).with(evals);
        soon("it ends", Runnable::run(&group, options)).await.expect("a clean end");
    };
    life(5).await;
    let after_one = handled.load(Ordering::SeqCst);
    assert!((1..32).contains(&after_one), "{after_one}");
    life(64).await;
    let report = send(SOON).run(&mut journal, |_| {}).await.expect("a report");
    assert_is_right(&report);
}

#[tokio::test(flavor = "multi_thread")]
async fn any_async_function_answers_whether_asked_directly_or_through_a_mailbox() {
    let responder = Responder::function(|request: EvalRequest| async move {
        let input = &request.sample.input;
        let bias = request.experiment.arguments.get("bias").and_then(Json::as_i64).unwrap_or(0);
        let (Some(a), Some(b)) = (input["a"].as_i64(), input["b"].as_i64()) else {
            return Err(HandlerFailure::new("NoNumbers", "a and b must be numbers"));
        };
        tokio::task::yield_now().await;
        assert!(a != 14, "fourteen is not for me");
        if a == 13 { Err(HandlerFailure::new("Unlucky", "it is 13")) } else { Ok(a + b + bias) }
    });
    let evaluation = Evaluation::new(plan()).concurrency(4);
    let direct =
        evaluation.run_over(&responder, &mut EvalJournal::in_memory(), |_| {}).await.expect("a report");
    assert_is_right(&direct);
    let office = Office::new();
    let evals = EvalLoop::over("evals", Arc::clone(&office.samples), &responder, Evaluator::Exact);
    let scope = LoopScope::start(Arc::new(evals.expect("a loop")), RunOptions::new());
    let correspondence =
        RemoteEvaluation::new(plan(), Arc::clone(&office.samples), Arc::clone(&office.results));
    let report = correspondence.run(&mut EvalJournal::in_memory(), |_| {}).await.expect("a report");
    assert!(scope.end(SOON).await);
    assert_is_right(&report);
}

#[tokio::test]
async fn a_missing_answer_is_a_timeout_and_an_unreadable_one_an_error() {
    let hangs = Responder::function(|_: EvalRequest| std::future::pending::<Result<(), HandlerFailure>>());
    let one = EvalPlan::new(sums(1), Evaluator::Exact, vec![Experiment::named("it")]).expect("a plan");
    let evaluation = Evaluation::new(one);
    let hangs = hangs.timeout(Duration::from_millis(50));
    let report = evaluation.run_over(&hangs, &mut EvalJournal::in_memory(), |_| {}).await.expect("a report");
    let unscored = &report.experiments[0].unscored[0];
    assert_eq!(
        (unscored.kind, unscored.message.as_str()),
        (UnscoredKind::Timeout, "there was no answer within 50ms")
    );

    let office = Office::new();
    let main = adder(&office, &Arc::default());
    let odd =
        Dataset::parse("{\"id\": \"odd\", \"input\": \"no sum\", \"expected\": 1}").expect("a data set");
    let plan = EvalPlan::new(odd, Evaluator::Exact, vec![Experiment::named("it")]).expect("a plan");
    let evaluation = Evaluation::new(plan);
    let responder = Responder::main_loop(main);
    let report =
        evaluation.run_over(&responder, &mut EvalJournal::in_memory(), |_| {}).await.expect("a report");
    let unscored = &report.experiments[0].unscored[0];
    assert!(unscored.message.starts_with("Undecodable: "), "{unscored:?}");
}
