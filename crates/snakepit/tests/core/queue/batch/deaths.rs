//! Workers that die with a batch: each call is counted once, retried only if allowed, and blamed only for what it did alone.

use std::time::Duration;

use futures_util::StreamExt;
use snakepit::policy::{NoRetry, Quarantine, Retry};
use snakepit::pool::Outcomes;
use snakepit::{CallError, Pool, PoolOptions, args};
use tokio::task::JoinHandle;

use crate::support::{Pit, at_once, lines, soon, until, worker};

/// More often than in any test.
const ALWAYS: u32 = 1000;

type Answers = Vec<Result<i64, CallError>>;

/// A worker that dies of -2 for the first times that it gets it, and holds its batches until the gate is open.
struct Scene {
    pit: Pit,
    pool: Pool,
    path: String,
    gate: String,
    times: u32,
}

impl Scene {
    async fn start(pool: PoolOptions, times: u32) -> Self {
        let pause = Duration::from_millis(5);
        let retry = Retry::default().first_pause(pause).longest_pause(pause);
        let pit = Pit::start(pool.workers(1).restarts(at_once()).retry(retry)).await;
        let (path, gate) = (pit.file("path"), pit.file("gate"));
        let pool = pit.pools()[0].clone();
        Self { pit, pool, path, gate, times }
    }

    fn call(&self, x: i64) -> snakepit::call::CallBuilder<i64> {
        let args = args! { x: x, path: self.path.as_str(), gate: self.gate.as_str(), times: self.times };
        self.pit.call("dies_for_a_while", args)
    }

    fn spawn(&self, x: i64) -> JoinHandle<Result<i64, CallError>> {
        tokio::spawn(self.call(x).into_future())
    }

    fn map(&self, inputs: Vec<i64>) -> snakepit::call::MapBuilder<i64> {
        let (path, gate, times) = (self.path.clone(), self.gate.clone(), self.times);
        let inputs = inputs
            .into_iter()
            .map(move |x| args! { x: x, path: path.as_str(), gate: gate.as_str(), times: times });
        self.pit.map("dies_for_a_while", inputs)
    }

    /// Sends the first call alone, and the others as one batch behind it. Returns the answers in their order.
    async fn batch_behind(
        &self,
        first: i64,
        others: impl IntoIterator<Item = JoinHandle<Result<i64, CallError>>>,
    ) -> Answers {
        let _ = std::fs::remove_file(&self.gate);
        let before = lines(&self.path).len();
        let mut calls = vec![self.spawn(first)];
        until("the first is under way", || lines(&self.path).len() == before + 1).await;
        calls.extend(others);
        until("they wait", || self.pool.queued() == calls.len() - 1).await;
        self.open();
        let mut answers = Vec::new();
        for call in calls {
            answers.push(soon("a call", call).await.expect("no panic"));
        }
        answers
    }

    fn open(&self) {
        std::fs::write(&self.gate, "").expect("the gate opens");
    }

    /// Returns the inputs of each run that got -2.
    fn fatal_runs(&self) -> Vec<String> {
        lines(&self.path).into_iter().filter(|line| line.split(',').any(|x| x == "-2")).collect()
    }

    /// Returns the number of calls of each run that got -2. Independent callers come in any order.
    fn fatal_sizes(&self) -> Vec<usize> {
        self.fatal_runs().iter().map(|line| line.split(',').count()).collect()
    }

    /// Returns, for each suspect, how many worker deaths it was present at.
    fn deaths(&self) -> Vec<usize> {
        self.pool.quarantine().iter().map(|suspect| suspect.autopsies.len()).collect()
    }
}

/// Checks that all but the fatal ones have their own answer. Returns the errors of the fatal ones.
fn fatal_errors(numbers: &[i64], answers: Answers) -> Vec<CallError> {
    assert_eq!(numbers.len(), answers.len());
    let mut errors = Vec::new();
    for (x, answer) in numbers.iter().zip(answers) {
        match answer {
            Ok(value) => assert_eq!(value, *x),
            Err(error) if *x == -2 => errors.push(error),
            Err(error) => panic!("{x}: {error}"),
        }
    }
    errors
}

fn counts(outcomes: Outcomes) -> (u64, u64, u64, u64, u64) {
    (outcomes.ok, outcomes.died, outcomes.refused, outcomes.retried, outcomes.calls())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idempotent_call_of_a_batch_survives_its_workers() {
    // Once with others, then alone.
    let scene = Scene::start(worker("batches.py"), 3).await;
    let numbers = [0, 1, 2, -2, 4, 5];
    let calls = numbers[1..].iter().map(|x| tokio::spawn(scene.call(*x).idempotent().into_future()));
    let answers = scene.batch_behind(0, calls).await;
    assert!(fatal_errors(&numbers, answers).is_empty());
    assert_eq!(scene.fatal_sizes(), [5, 1, 1, 1]);
    assert_eq!(counts(scene.pool.outcomes()), (6, 0, 0, 2, 6), "to be made alone is no retry");
    assert!(scene.deaths().is_empty(), "an answer clears it");
    scene.pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_killer_in_a_batch_is_suspected_and_every_call_is_counted_once() {
    let scene = Scene::start(worker("batches.py"), ALWAYS).await;
    let numbers = [0, 1, 2, -2, 4, 5];
    for round in 1..=3 {
        let answers = scene.batch_behind(0, numbers[1..].iter().map(|x| scene.spawn(*x))).await;
        let errors = fatal_errors(&numbers, answers);
        assert!(matches!(errors[..], [CallError::WorkerDied { .. }]), "{errors:?}");
        assert_eq!(scene.deaths(), [round], "the death of the batch is nobody's");
        let (calls, deaths) = (6 * round as u64, round as u64);
        assert_eq!(counts(scene.pool.outcomes()), (calls - deaths, deaths, 0, 0, calls));
    }
    let error = soon("a call", scene.call(-2)).await.expect_err("refused");
    let CallError::Quarantined { autopsies, .. } = &error else { panic!("{error}") };
    assert_eq!(autopsies.len(), 3, "{error}");
    assert_eq!(soon("a call", scene.call(1)).await.expect("another call"), 1);
    assert_eq!(counts(scene.pool.outcomes()), (16, 3, 1, 0, 20));
    assert_eq!(scene.fatal_sizes(), [5, 1, 5, 1, 5, 1], "each time together, then alone");
    scene.pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_quarantined_while_its_batch_runs_is_not_retried() {
    let pool = worker("batches.py").quarantine(Quarantine::default().deaths(1));
    let scene = Scene::start(pool, ALWAYS).await;
    // The first dies alone when the batch with the same call was already admitted.
    let numbers = [-2, 1, -2, 3];
    let answers = scene.batch_behind(-2, numbers[1..].iter().map(|x| scene.spawn(*x))).await;
    let errors = fatal_errors(&numbers, answers);
    assert!(matches!(errors[..], [CallError::WorkerDied { .. }, CallError::WorkerDied { .. }]), "{errors:?}");
    assert_eq!(scene.fatal_sizes(), [1, 3]);
    assert_eq!(counts(scene.pool.outcomes()), (2, 2, 0, 0, 4));
    scene.pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_lost_its_worker_is_retried_without_waiting_batch_members() {
    let scene = Scene::start(worker("batches.py"), 1).await;
    let fatal = tokio::spawn(scene.call(-2).idempotent().into_future());
    until("it is under way", || lines(&scene.path) == ["-2"]).await;
    let others: Vec<_> = (1..4).map(|x| scene.spawn(x)).collect();
    until("they wait", || scene.pool.queued() == 3).await;
    // They go to the next worker, whose start takes longer than the pause of the lost call.
    scene.open();
    assert_eq!(soon("the call", fatal).await.expect("no panic").expect("an answer"), -2);
    for (x, call) in (1..).zip(others) {
        assert_eq!(soon("a call", call).await.expect("no panic").expect("an answer"), x);
    }
    assert_eq!(scene.fatal_runs(), ["-2", "-2"]);
    scene.pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_that_leave_their_batch_are_counted_once() {
    let pit = Pit::start(worker("batches.py").workers(2)).await;
    let pool = pit.pools()[0].clone();
    let (path, gate) = (pit.file("path"), pit.file("gate"));
    let call =
        |x: i64| pit.call::<i64>("hold_briefly", args! { x: x, path: path.as_str(), gate: gate.as_str() });
    let first = tokio::spawn(call(0).into_future());
    until("the first is under way", || lines(&path) == ["0"]).await;
    let left = tokio::spawn(call(1).into_future());
    let late = tokio::spawn(call(2).timeout(Duration::from_millis(400)).into_future());
    let stays = tokio::spawn(call(3).into_future());
    until("they are under way", || lines(&path).len() == 2 && pool.in_flight() == 4).await;
    left.abort();
    assert!(left.await.expect_err("aborted").is_cancelled());
    let error = soon("the timeout", late).await.expect("no panic").expect_err("too late");
    assert!(matches!(error, CallError::Timeout { .. }), "{error}");
    std::fs::write(&gate, "").expect("the gate opens");
    for call in [first, stays] {
        soon("a call", call).await.expect("no panic").expect("an answer");
    }
    let outcomes = pool.outcomes();
    assert_eq!((outcomes.ok, outcomes.cancelled, outcomes.timed_out), (2, 1, 1), "{outcomes:?}");
    assert_eq!(outcomes.calls(), 4, "{outcomes:?}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idempotent_map_over_a_batch_command_survives_its_workers() {
    let scene = Scene::start(worker("batches.py"), 3).await;
    scene.open();
    let numbers = [1, 2, -2, 4, 5, 6, 7, 8, 9, 10, 11, 12];
    let map = scene.map(numbers.to_vec()).idempotent().in_order().expect("a map");
    let answers = soon("the map", map.collect::<Vec<_>>()).await;
    assert!(fatal_errors(&numbers, answers).is_empty());
    assert_eq!(scene.fatal_runs(), ["1,2,-2,4,5,6,7,8", "-2", "-2", "-2"]);
    assert_eq!(counts(scene.pool.outcomes()), (12, 0, 0, 2, 12), "to be made alone is no retry");
    scene.pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_map_over_a_batch_command_suspects_and_refuses_only_the_fatal_input() {
    let scene = Scene::start(worker("batches.py"), ALWAYS).await;
    scene.open();
    let numbers = [1, 2, -2, 4, 5];
    for round in 1..=2 {
        let map = scene.map(numbers.to_vec()).in_order().expect("a map");
        let errors = fatal_errors(&numbers, soon("the map", map.collect::<Vec<_>>()).await);
        assert!(matches!(errors[..], [CallError::WorkerDied { .. }]), "{errors:?}");
        assert_eq!(scene.deaths(), [round], "the death of the list is nobody's");
    }
    // The third is one too many, and the fourth is not tried.
    let numbers = [1, -2, 3, -2];
    let map = scene.map(numbers.to_vec()).in_order().expect("a map");
    let errors = fatal_errors(&numbers, soon("the map", map.collect::<Vec<_>>()).await);
    let CallError::WorkerDied { no_retry: None, .. } = &errors[0] else { panic!("{}", errors[0]) };
    let CallError::WorkerDied { no_retry: Some(NoRetry::Quarantined), .. } = &errors[1] else {
        panic!("{}", errors[1])
    };
    assert_eq!(scene.fatal_runs(), ["1,2,-2,4,5", "-2", "1,2,-2,4,5", "-2", "1,-2,3,-2", "-2"]);
    let map = scene.map(numbers.to_vec()).in_order().expect("a map");
    let errors = fatal_errors(&numbers, soon("the map", map.collect::<Vec<_>>()).await);
    assert!(
        matches!(errors[..], [CallError::Quarantined { .. }, CallError::Quarantined { .. }]),
        "{errors:?}"
    );
    assert_eq!(counts(scene.pool.outcomes()), (12, 4, 2, 0, 18));
    scene.pit.end().await;
}
