//! `HeldCalls` as authors of adapters use it: with calls of a real pool, whose worker hands them to the test.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use proptest::prelude::*;
use snakepit::adapter::{
    Adapter, CallAdmission, CallSettlement, CallStage, CreditUnit, Handle, HeldCalls, Introduction,
    ItemDelivery, ProtocolFault, Reason, Spawner, StartError, StartKnowledge,
};
use snakepit::call::{Call, CallId, Portion, RemoteErrorKind};
use snakepit::custody::WorkerProcess;
use snakepit::value::Encoded;
use snakepit::{CallError, PoolOptions, RemoteError, Snakepit};
use tokio::runtime::Runtime;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// An adapter whose worker hands its calls to the test.
struct Lender(mpsc::UnboundedSender<Call>);

struct LenderHandle {
    calls: mpsc::UnboundedSender<Call>,
    introduction: Introduction,
}

impl Adapter for Lender {
    fn start_worker(&self, _spawner: Spawner) -> BoxFuture<'_, Result<Arc<dyn Handle>, StartError>> {
        let handle = LenderHandle { calls: self.0.clone(), introduction: Introduction::default() };
        futures_util::future::ready(Ok(Arc::new(handle) as Arc<dyn Handle>)).boxed()
    }

    fn starts_processes(&self) -> bool {
        false
    }
}

impl Handle for LenderHandle {
    fn process(&self) -> Option<&WorkerProcess> {
        None
    }

    fn introduction(&self) -> &Introduction {
        &self.introduction
    }

    fn execute(self: Arc<Self>, call: Call) {
        let _ = self.calls.send(call);
    }

    fn terminate(&self, _reason: Reason) -> BoxFuture<'_, ()> {
        futures_util::future::ready(()).boxed()
    }
}

/// A pool whose calls go to the test.
struct Bench {
    pit: Snakepit,
    calls: Mutex<mpsc::UnboundedReceiver<Call>>,
}

type Caller = JoinHandle<Result<i64, CallError>>;

impl Bench {
    async fn start() -> Self {
        let (sender, calls) = mpsc::unbounded_channel();
        let pool = PoolOptions::new("lender", Lender(sender)).workers(1).concurrency(64);
        let pit = Snakepit::builder().pool(pool).start().await.expect("a pool");
        Self { pit, calls: Mutex::new(calls) }
    }

    /// Returns the next call that the worker is given.
    async fn next(&self) -> Call {
        let next = async { self.calls.lock().await.recv().await };
        tokio::time::timeout(Duration::from_secs(20), next).await.expect("in time").expect("a call")
    }

    /// Stops the pool. Calls that it still has are lost.
    async fn stop(self) {
        drop(self.calls);
        self.pit.stop().await;
    }

    /// Returns a call, and the caller that waits for its answer.
    async fn call(&self) -> (Call, Caller) {
        let pit = self.pit.clone();
        let caller = tokio::spawn(async move { pit.call::<i64>("work", ()).await });
        (self.next().await, caller)
    }

    /// Returns the numbers of so many held calls, and the callers that wait for them.
    async fn hold(&self, held: &mut HeldCalls<()>, count: usize) -> (Vec<u64>, Vec<Caller>) {
        let (mut numbers, mut callers) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let (call, caller) = self.call().await;
            numbers.push(call.id().get());
            callers.push(caller);
            assert!(matches!(held.begin(call, ()), CallAdmission::ToSend(_)));
        }
        (numbers, callers)
    }
}

async fn answer(caller: Caller) -> Result<i64, CallError> {
    tokio::time::timeout(Duration::from_secs(20), caller).await.expect("an answer in time").expect("a task")
}

fn number(value: i64) -> Encoded {
    Encoded::encode(&value).expect("a number")
}

#[test]
fn the_outcome_of_a_lost_call_follows_from_its_stage() {
    let table = [
        (CallStage::Unsent, StartKnowledge::Known, CallSettlement::GiveBack),
        (CallStage::Unsent, StartKnowledge::Unknown, CallSettlement::GiveBack),
        (CallStage::Sent, StartKnowledge::Known, CallSettlement::GiveBack),
        (CallStage::Sent, StartKnowledge::Unknown, CallSettlement::Lose),
        (CallStage::Started, StartKnowledge::Known, CallSettlement::Lose),
        (CallStage::Started, StartKnowledge::Unknown, CallSettlement::Lose),
        (CallStage::GivenUp, StartKnowledge::Known, CallSettlement::Conclude),
        (CallStage::GivenUp, StartKnowledge::Unknown, CallSettlement::Conclude),
    ];
    for (stage, starts, at_end) in table {
        assert_eq!(stage.at_end(starts), at_end, "{stage:?}, {starts:?}");
    }
}

#[tokio::test]
async fn a_call_goes_from_unsent_to_sent_to_started_to_its_answer() {
    let bench = Bench::start().await;
    let mut held = HeldCalls::new(8);
    let (numbers, mut callers) = bench.hold(&mut held, 1).await;
    let id = numbers[0];
    assert_eq!(held.stage(id), Some(CallStage::Unsent));
    assert!(held.sent(id));
    assert_eq!(held.stage(id), Some(CallStage::Sent));
    held.started(id);
    assert_eq!(held.stage(id), Some(CallStage::Started));
    assert!(held.sent(id), "twice is once");
    held.not_sent(id);
    held.take(id).expect("a call").finish(Ok(number(7)));
    assert_eq!((held.stage(id), held.is_empty(), held.take(id).is_some()), (None, true, false));
    assert_eq!(answer(callers.remove(0)).await.ok(), Some(7));
    bench.stop().await;
}

#[tokio::test]
async fn all_sent_covers_only_calls_begun_before_it() {
    let bench = Bench::start().await;
    let mut held = HeldCalls::new(8);
    let (early, _callers) = bench.hold(&mut held, 2).await;
    held.all_sent();
    let (late, _callers) = bench.hold(&mut held, 1).await;
    assert!(early.iter().all(|id| held.stage(*id) == Some(CallStage::Sent)));
    assert_eq!(held.stage(late[0]), Some(CallStage::Unsent));
    assert_eq!(held.check_sent(early[0]), Ok(()));
    let fault = held.check_sent(late[0]).expect_err("it cannot be answered");
    assert_eq!(fault, ProtocolFault::UnsentAnswer { call: late[0] });
    held.end(StartKnowledge::Unknown).settle();
    bench.stop().await;
}

#[tokio::test]
async fn calls_are_started_in_the_order_in_which_they_were_sent() {
    let bench = Bench::start().await;
    let mut held = HeldCalls::new(8);
    let (ids, _callers) = bench.hold(&mut held, 4).await;
    assert!(ids[..3].iter().all(|id| held.sent(*id)));
    held.started(ids[1]);
    let stages: Vec<_> = ids.iter().filter_map(|id| held.stage(*id)).collect();
    assert_eq!(stages, [CallStage::Started, CallStage::Started, CallStage::Sent, CallStage::Unsent]);
    let waiting = |held: &HeldCalls, starts| {
        let mut waiting: Vec<u64> = held.not_begun(starts).into_iter().map(CallId::get).collect();
        waiting.sort_unstable();
        waiting
    };
    assert_eq!(waiting(&held, StartKnowledge::Known), ids[2..]);
    assert_eq!(waiting(&held, StartKnowledge::Unknown), ids[3..]);
    // An answer to the third call shows that it was started, too.
    held.take(ids[2]).expect("a call").finish(Ok(number(1)));
    assert_eq!(waiting(&held, StartKnowledge::Known), ids[3..]);
    held.end(StartKnowledge::Unknown).settle();
    bench.stop().await;
}

#[tokio::test]
async fn a_call_that_turns_out_unsent_goes_to_another_worker() {
    let bench = Bench::start().await;
    let mut held = HeldCalls::new(8);
    let (ids, mut callers) = bench.hold(&mut held, 1).await;
    held.sent(ids[0]);
    held.not_sent(ids[0]);
    assert_eq!(held.stage(ids[0]), Some(CallStage::Unsent));
    held.end(StartKnowledge::Unknown).settle();
    let again = bench.next().await;
    assert_eq!(again.id().get(), ids[0]);
    again.finish(Ok(number(3)));
    assert_eq!(answer(callers.remove(0)).await.ok(), Some(3));
    bench.stop().await;
}

#[tokio::test]
async fn a_call_that_was_given_up_keeps_its_place_until_its_worker_is_done() {
    let bench = Bench::start().await;
    let mut held = HeldCalls::new(8);
    let (ids, mut callers) = bench.hold(&mut held, 2).await;
    let error = || Err(RemoteError::new("given_up", "enough"));
    assert!(!held.give_up(ids[0], error()), "the worker does not know of it");
    assert!(!held.give_up(0, error()), "the worker does not hold it");
    held.all_sent();
    assert!(held.give_up(ids[0], error()) && held.give_up(ids[1], error()));
    assert!(!held.give_up(ids[0], error()), "once");
    assert_eq!(held.stage(ids[0]), Some(CallStage::GivenUp));
    assert_eq!(held.len(), 2);
    held.take(ids[0]).expect("a call").conclude();
    held.end(StartKnowledge::Known).settle();
    for caller in callers.drain(..) {
        let error = answer(caller).await.expect_err("it was given up");
        assert!(matches!(error, CallError::Remote(error) if error.kind.as_str() == "given_up"));
    }
    bench.stop().await;
}

#[tokio::test]
async fn a_closed_connection_keeps_calls_unsent_and_a_leaving_worker_rejects_them() {
    let bench = Bench::start().await;
    let mut held = HeldCalls::new(8);
    let (ids, _callers) = bench.hold(&mut held, 1).await;
    held.all_sent();
    held.close();
    let (kept, _caller) = bench.call().await;
    let id = kept.id().get();
    assert!(matches!(held.begin(kept, ()), CallAdmission::Kept));
    assert!(!held.sent(id), "nothing is sent any more");
    held.all_sent();
    assert_eq!(held.stage(id), Some(CallStage::Unsent));
    let at_work: Vec<u64> = held.at_work().iter().map(|at_work| at_work.call.get()).collect();
    assert_eq!(at_work, ids);
    held.leave();
    let (refused, _caller) = bench.call().await;
    let CallAdmission::Refused(refused) = held.begin(refused, ()) else { panic!("it takes no more calls") };
    refused.finish(Ok(number(0)));
    held.end(StartKnowledge::Unknown).settle();
    bench.stop().await;
}

#[tokio::test]
async fn as_many_calls_are_at_work_as_the_concurrency_allows() {
    let bench = Bench::start().await;
    let mut held = HeldCalls::new(2);
    let (ids, _callers) = bench.hold(&mut held, 3).await;
    let at_work = held.at_work();
    assert_eq!(at_work.iter().map(|at_work| at_work.call.get()).collect::<Vec<_>>(), ids[..2]);
    assert_eq!(&*at_work[0].command, "work");
    held.end(StartKnowledge::Unknown).settle();
    bench.stop().await;
}

#[tokio::test]
async fn a_serial_worker_starts_the_next_call_with_its_last_answer() {
    let bench = Bench::start().await;
    let mut held = HeldCalls::new(1);
    let (ids, _callers) = bench.hold(&mut held, 2).await;
    let first = held.at_work();
    assert_eq!(first.len(), 1);
    let taken = held.take(ids[0]).expect("a call");
    let answered = Instant::now();
    assert_eq!(held.answered(answered), answered - first[0].since);
    taken.finish(Ok(number(0)));
    let second = held.at_work();
    assert_eq!((second[0].call.get(), second[0].since), (ids[1], answered));
    let taken = held.take(ids[1]).expect("a call");
    assert!(held.service_time(&taken) <= answered.elapsed());
    taken.finish(Ok(number(0)));
    bench.stop().await;
}

#[tokio::test]
async fn a_worker_that_has_answered_all_it_was_sent_is_busy_again_once_it_is_sent_more() {
    let bench = Bench::start().await;
    let mut held = HeldCalls::new(1);
    let (first, _callers) = bench.hold(&mut held, 2).await;
    held.all_sent();
    let (_unsent, _more) = bench.hold(&mut held, 1).await;
    for (number, stays_busy) in first.iter().zip([true, false]) {
        let taken = held.take(*number).expect("a call");
        let answered = Instant::now();
        held.answered_together(answered, std::iter::once(&taken));
        taken.finish(Ok(Encoded::nil()));
        if !stays_busy {
            held.all_sent();
        }
        assert_eq!(held.at_work()[0].since == answered, stays_busy);
    }
    held.end(StartKnowledge::Unknown).settle();
    bench.stop().await;
}

#[tokio::test]
async fn a_stream_is_counted_against_its_credit() {
    let bench = Bench::start().await;
    let mut stream = bench.pit.stream::<i64>("work", ()).credit(2).open().expect("a stream");
    let call = bench.next().await;
    let id = call.id().get();
    let mut held = HeldCalls::new(1);
    assert!(matches!(held.begin(call, ()), CallAdmission::ToSend(_)));
    let credit = held.credit(id).expect("a credit");
    assert_eq!(held.item(id, number(1)), ItemDelivery::Passed);
    assert!(credit.available().now_or_never().is_some());
    assert_eq!(held.item(id, number(2)), ItemDelivery::Passed);
    assert!(credit.available().now_or_never().is_none(), "both are sent");
    assert!(held.grant(id, Portion { items: 1, bytes: 1 }));
    assert!(credit.available().now_or_never().is_some());
    let third = held.item(id, number(3));
    assert_eq!(third, ItemDelivery::OverCredit(CreditUnit::Items), "the reader has read none");
    held.take(id).expect("a call").finish(Ok(Encoded::nil()));
    assert!(!held.grant(id, Portion::default()));
    assert_eq!(held.item(id, number(4)), ItemDelivery::Dropped);
    let mut items = Vec::new();
    while let Some(item) = stream.next().await {
        items.push(item.expect("an item"));
    }
    assert_eq!(items, [1, 2, 3]);
    bench.stop().await;
}

#[tokio::test]
async fn a_stream_that_nobody_asked_for_fails_its_call() {
    let bench = Bench::start().await;
    let mut held = HeldCalls::new(1);
    let (ids, mut callers) = bench.hold(&mut held, 1).await;
    assert!(held.credit(ids[0]).is_none());
    assert_eq!(held.item(ids[0], Encoded::nil()), ItemDelivery::Unasked);
    assert_eq!(held.item(ids[0], Encoded::nil()), ItemDelivery::Dropped, "told once");
    held.take(ids[0]).expect("a call").finish_after(Duration::ZERO, Ok(Encoded::nil()));
    let error = answer(callers.remove(0)).await.expect_err("it cannot be answered");
    assert!(matches!(error, CallError::Remote(error) if error.kind == RemoteErrorKind::Streaming));
    bench.stop().await;
}

#[tokio::test]
async fn the_end_of_a_worker_releases_senders_that_wait_for_credit() {
    let bench = Bench::start().await;
    let _stream = bench.pit.stream::<i64>("work", ()).credit(1).open().expect("a stream");
    let call = bench.next().await;
    let id = call.id().get();
    let mut held = HeldCalls::new(1);
    assert!(matches!(held.begin(call, ()), CallAdmission::ToSend(_)));
    let credit = held.credit(id).expect("a credit");
    assert_eq!(held.item(id, Encoded::nil()), ItemDelivery::Passed);
    assert!(credit.available().now_or_never().is_none());
    held.end(StartKnowledge::Unknown).settle();
    credit.available().await;
    bench.stop().await;
}

/// An event in the life of a call. The number chooses the call.
#[derive(Clone, Copy, Debug)]
enum Step {
    Begin,
    Send(usize),
    SendAll,
    Unsend(usize),
    Start(usize),
    Take(usize),
    GiveUp(usize),
    Close,
    Leave,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Begin),
        4 => any::<usize>().prop_map(Step::Send),
        1 => Just(Step::SendAll),
        1 => any::<usize>().prop_map(Step::Unsend),
        3 => any::<usize>().prop_map(Step::Start),
        3 => any::<usize>().prop_map(Step::Take),
        2 => any::<usize>().prop_map(Step::GiveUp),
        1 => Just(Step::Close),
        1 => Just(Step::Leave),
    ]
}

/// How a call was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answered {
    ByThisWorker,
    ByAnother,
    GivenUp,
    Lost,
}

/// Applies the steps to calls of a pool. Checks that each call is answered once, and as the table says.
async fn each_call_is_answered_once(bench: &Bench, steps: &[Step], starts: StartKnowledge) {
    let mut held = HeldCalls::new(3);
    let mut callers: Vec<(u64, Caller)> = Vec::new();
    let mut expected: Vec<(u64, Answered)> = Vec::new();
    let mut given_back = 0;
    for step in steps {
        let choose = |index: usize| match callers.len() {
            0 => 0,
            count => callers[index % count].0,
        };
        match *step {
            Step::Begin => {
                let (call, caller) = bench.call().await;
                let id = call.id().get();
                callers.push((id, caller));
                if let CallAdmission::Refused(call) = held.begin(call, ()) {
                    call.give_back();
                    expected.push((id, Answered::ByAnother));
                    // At once, because the next `bench.call` would take it for its own.
                    bench.next().await.finish(Ok(number(2)));
                }
            }
            Step::Send(index) => {
                held.sent(choose(index));
            }
            Step::SendAll => held.all_sent(),
            Step::Unsend(index) => held.not_sent(choose(index)),
            Step::Start(index) => held.started(choose(index)),
            Step::Take(index) => {
                let id = choose(index);
                let stage = held.stage(id);
                if let Some(taken) = held.take(id) {
                    if stage == Some(CallStage::GivenUp) {
                        taken.conclude();
                        expected.push((id, Answered::GivenUp));
                    } else {
                        taken.finish(Ok(number(1)));
                        expected.push((id, Answered::ByThisWorker));
                    }
                }
            }
            Step::GiveUp(index) => {
                held.give_up(choose(index), Err(RemoteError::new("given_up", "enough")));
            }
            Step::Close => held.close(),
            Step::Leave => held.leave(),
        }
    }
    for (at_end, call) in held.end(starts) {
        let id = call.call.id().get();
        expected.push((
            id,
            match at_end {
                CallSettlement::GiveBack => Answered::ByAnother,
                CallSettlement::Lose => Answered::Lost,
                CallSettlement::Conclude => Answered::GivenUp,
            },
        ));
        given_back += usize::from(at_end == CallSettlement::GiveBack);
        call.settle(at_end);
    }
    assert!(held.is_empty());
    for _ in 0..given_back {
        bench.next().await.finish(Ok(number(2)));
    }
    let mut answered = Vec::new();
    for (id, caller) in callers {
        answered.push((
            id,
            match answer(caller).await {
                Ok(1) => Answered::ByThisWorker,
                Ok(_) => Answered::ByAnother,
                Err(CallError::Remote(error)) if error.kind.as_str() == "given_up" => Answered::GivenUp,
                Err(_) => Answered::Lost,
            },
        ));
    }
    answered.sort_unstable_by_key(|(id, _)| *id);
    expected.sort_unstable_by_key(|(id, _)| *id);
    assert_eq!(answered, expected);
}

#[test]
fn each_call_is_answered_exactly_once_whatever_happens() {
    let runtime = Runtime::new().expect("a runtime");
    let bench = runtime.block_on(Bench::start());
    let starts = prop_oneof![Just(StartKnowledge::Known), Just(StartKnowledge::Unknown)];
    let config = ProptestConfig { cases: 48, ..ProptestConfig::default() };
    proptest!(config, |(steps in prop::collection::vec(step(), 1..30), starts in starts)| {
        runtime.block_on(each_call_is_answered_once(&bench, &steps, starts));
    });
    runtime.block_on(bench.stop());
}
