//! The suite itself is tested: it passes a mock, and catches mocks that are broken on purpose, each with its own words.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::StreamExt;
use futures_util::future::{self, BoxFuture, FutureExt};
use futures_util::stream;
use tokio::sync::watch;

use super::counting::{Book, Counting};
use super::{Capability, Feature, MockSubject, Subject, Verdict, Way, mock};
use crate::adapter::{Adapter, CancelStage, Handle, Introduction, Reason, Spawner, StartError};
use crate::call::{Call, CallId, Portion, RemoteError};
use crate::custody::{self, WorkerId};
use crate::logging::Logging;
use crate::value::Encoded;
use crate::worker::Output;
use crate::{Mock, Pool, Value};

/// What is wrong with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    Nothing,
    ReadyTooEarly,
    ForgetsCalls,
    MixesUpAnswers,
    OneCallAtATime,
    CutsLongTexts,
    FloatsBecomeIntegers,
    BytesBecomeText,
    RefusesWithoutAPlace,
    LosesErrorTypes,
    ErrorsBecomeValues,
    AnswersUnknownCommands,
    LosesTheLastItem,
    LosesTheErrorOfAStream,
    IgnoresCredit,
    IgnoresCancels,
    HidesDeaths,
    DiesTogether,
    KeepsItsCalls,
    KeepsLateCalls,
}

/// A mock with a fault: in its commands, or in the adapter around it.
struct Broken(Fault);

impl Subject for Broken {
    fn pool(&self, _way: Way) -> Pool {
        let mut pool = Pool::mock(commands(self.0));
        let inner = Arc::clone(&pool.adapter);
        pool.adapter = Arc::new(BrokenAdapter { inner, fault: self.0, dead: watch::Sender::new(false) });
        pool
    }

    fn capability(&self, feature: Feature) -> Capability {
        match (feature, self.0) {
            (Feature::Bytes, Fault::RefusesWithoutAPlace) => Capability::Absent("it is broken"),
            _ => MockSubject.capability(feature),
        }
    }
}

fn commands(fault: Fault) -> Mock {
    let sound = mock::worker();
    match fault {
        Fault::MixesUpAnswers => {
            let last = Arc::new(Mutex::new(Value::from("the first")));
            sound.command("echo", move |args| {
                let value = args.get("value").cloned().unwrap_or_default();
                let other =
                    std::mem::replace(&mut *last.lock().unwrap_or_else(PoisonError::into_inner), value);
                future::ready(Ok(other))
            })
        }
        Fault::OneCallAtATime => {
            let turn = Arc::new(tokio::sync::Mutex::new(()));
            sound.command("wait", move |args| {
                let turn = Arc::clone(&turn);
                async move {
                    let _mine = turn.lock().await;
                    mock::wait(args).await
                }
            })
        }
        Fault::CutsLongTexts => sound.command("echo", |args| async move {
            Ok(match args.get("value") {
                Some(Value::Str(text)) => text.chars().take(64 << 10).collect::<String>().into(),
                value => value.cloned().unwrap_or_default(),
            })
        }),
        Fault::FloatsBecomeIntegers => sound.command("echo", |args| async move {
            Ok(match args.get("value") {
                Some(Value::Float(number)) if number.fract() == 0.0 => (*number as i64).into(),
                value => value.cloned().unwrap_or_default(),
            })
        }),
        Fault::BytesBecomeText => sound.command("echo", |args| async move {
            Ok(match args.get("value") {
                Some(Value::Bytes(bytes)) => String::from_utf8_lossy(bytes).into_owned().into(),
                value => value.cloned().unwrap_or_default(),
            })
        }),
        Fault::RefusesWithoutAPlace => sound.command("echo", |_| async move {
            Err(RemoteError::new("bad_value", "no bytes here, wherever they are").into())
        }),
        Fault::LosesErrorTypes => sound.command("fail", |_| async move { Err("it went wrong".into()) }),
        Fault::ErrorsBecomeValues => sound.command("fail", |_| async move { Ok("an error".into()) }),
        Fault::LosesTheLastItem => sound.stream("count", |args| {
            let n = args.get("n").and_then(Value::as_i64).unwrap_or_default();
            stream::iter((0..n - 1).map(|n| Ok(n.into())))
        }),
        Fault::LosesTheErrorOfAStream => {
            sound.stream("count_and_fail", |_| stream::iter((0..3).map(|n| Ok(Value::from(n)))).take(3))
        }
        Fault::Nothing
        | Fault::ReadyTooEarly
        | Fault::ForgetsCalls
        | Fault::AnswersUnknownCommands
        | Fault::IgnoresCredit
        | Fault::IgnoresCancels
        | Fault::HidesDeaths
        | Fault::DiesTogether
        | Fault::KeepsItsCalls
        | Fault::KeepsLateCalls => sound,
    }
}

struct BrokenAdapter {
    inner: Arc<dyn Adapter>,
    fault: Fault,
    /// One of its workers has died.
    dead: watch::Sender<bool>,
}

impl Adapter for BrokenAdapter {
    fn start_worker(&self, spawner: Spawner) -> BoxFuture<'_, Result<Arc<dyn Handle>, StartError>> {
        async move {
            let inner = self.inner.start_worker(spawner).await?;
            let worker = BrokenWorker {
                inner,
                fault: self.fault,
                given: Mutex::new(0),
                kept: Mutex::default(),
                is_over: AtomicBool::new(false),
                dead: self.dead.clone(),
            };
            Ok(Arc::new(worker) as Arc<dyn Handle>)
        }
        .boxed()
    }

    fn starts_processes(&self) -> bool {
        false
    }
}

struct BrokenWorker {
    inner: Arc<dyn Handle>,
    fault: Fault,
    given: Mutex<usize>,
    kept: Mutex<Vec<Call>>,
    is_over: AtomicBool,
    dead: watch::Sender<bool>,
}

impl Handle for BrokenWorker {
    fn process(&self) -> Option<&custody::Worker> {
        None
    }

    fn introduction(&self) -> &Introduction {
        self.inner.introduction()
    }

    fn execute(self: Arc<Self>, call: Call) {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        *given += 1;
        let (id, inner) = (call.id(), Arc::clone(&self.inner));
        match self.fault {
            Fault::ReadyTooEarly if *given == 1 => {
                call.finish(Err(RemoteError::new("refused", "it is still starting")));
            }
            // Its end is never told.
            Fault::ForgetsCalls if given.is_multiple_of(7) => std::mem::forget(call),
            Fault::AnswersUnknownCommands
                if !self.introduction().commands.contains(&call.command().into()) =>
            {
                call.finish(Ok(Encoded::nil()));
            }
            Fault::KeepsItsCalls if call.command() == "wait" => {
                call_started(&call);
                self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(call);
            }
            Fault::KeepsLateCalls if self.is_over.load(Ordering::SeqCst) => std::mem::forget(call),
            Fault::IgnoresCredit => {
                Arc::clone(&inner).execute(call);
                inner.grant(id, Portion { items: 600, bytes: 1 << 40 });
            }
            _ => inner.execute(call),
        }
    }

    fn cancel(&self, call: CallId, stage: CancelStage) {
        if self.fault != Fault::IgnoresCancels {
            self.inner.cancel(call, stage);
        }
    }

    fn grant(&self, call: CallId, more: Portion) {
        self.inner.grant(call, more);
    }

    fn broken(&self) -> BoxFuture<'_, String> {
        async {
            match self.fault {
                Fault::HidesDeaths => future::pending().await,
                Fault::DiesTogether => {
                    let mut dead = self.dead.subscribe();
                    tokio::select! {
                        _ = dead.wait_for(|dead| *dead) => "another one has died".into(),
                        why = self.inner.broken() => {
                            self.dead.send_replace(true);
                            why
                        }
                    }
                }
                _ => self.inner.broken().await,
            }
        }
        .boxed()
    }

    fn terminate(&self, reason: Reason) -> BoxFuture<'_, ()> {
        self.is_over.store(true, Ordering::SeqCst);
        if self.fault == Fault::KeepsItsCalls {
            std::mem::take(&mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner))
                .into_iter()
                .for_each(std::mem::forget);
        }
        self.inner.terminate(reason)
    }
}

/// Does what `wait` does first.
fn call_started(call: &Call) {
    let crate::Input::One(args) = call.input() else { panic!("one call") };
    let args = args.to_value().expect("arguments");
    std::fs::write(args["started"].as_str().expect("a path"), "started\n").expect("noted");
}

/// What a check says about it; nothing if it holds.
fn complaint(check: &str, fault: Fault) -> Option<String> {
    let outcome = catch_unwind(AssertUnwindSafe(|| super::run(check, &Broken(fault))));
    match outcome {
        Ok(Verdict::Held) => None,
        Ok(Verdict::Skipped(why)) => panic!("{check} was skipped: {why}"),
        Err(panic) => {
            let said = panic.downcast_ref::<&str>().map(|said| (*said).to_owned());
            Some(said.or_else(|| panic.downcast_ref::<String>().cloned()).expect("words"))
        }
    }
}

/// Which check catches which fault, and in which words.
const CAUGHT: &[(Fault, &str, &str)] = &[
    (Fault::ReadyTooEarly, "a_worker_that_is_ready_answers", "it is still starting"),
    (Fault::ForgetsCalls, "many_calls_at_once_get_their_own_answers", "echo: not within"),
    (Fault::MixesUpAnswers, "many_calls_at_once_get_their_own_answers", "the answer of another one"),
    (Fault::OneCallAtATime, "calls_run_at_the_same_time_where_they_may", "wait has begun: not within"),
    (Fault::CutsLongTexts, "large_values_travel_both_ways", "bytes came back as"),
    (Fault::FloatsBecomeIntegers, "floats_stay_floats", "came back as"),
    (Fault::BytesBecomeText, "byte_strings_come_back_or_are_refused", "came back as"),
    (Fault::RefusesWithoutAPlace, "byte_strings_come_back_or_are_refused", "is refused at \"\""),
    (Fault::LosesErrorTypes, "an_error_tells_its_type", "its type is \"\""),
    (Fault::ErrorsBecomeValues, "an_error_says_what_happened", "fail does not fail"),
    (Fault::AnswersUnknownCommands, "an_unknown_command_is_an_error_that_says_so", "does not exist answers"),
    (Fault::LosesTheLastItem, "a_stream_brings_its_values_in_order", "values came as"),
    (Fault::LosesTheErrorOfAStream, "a_stream_that_fails_brings_what_it_had", "and not with its error"),
    (Fault::IgnoresCredit, "a_slow_reader_holds_the_worker_back", "values ahead of a reader"),
    (Fault::IgnoresCancels, "a_cancelled_call_does_not_cost_the_worker", "a cancel has cost the worker"),
    (Fault::HidesDeaths, "a_worker_that_exits_fails_its_call_with_an_autopsy", "exit: not within"),
    (Fault::DiesTogether, "a_death_harms_no_neighbour", "the neighbour's call has ended"),
    (Fault::KeepsItsCalls, "a_broken_worker_is_terminated_once", "the answer of wait: not within"),
    (
        Fault::KeepsLateCalls,
        "a_call_that_comes_after_the_end_is_answered",
        "after the end of its worker: not within",
    ),
];

#[test]
fn a_broken_adapter_is_caught_in_words_that_name_the_fault() {
    let missed: Vec<String> = std::thread::scope(|scope| {
        let each = CAUGHT.iter().map(|(fault, check, words)| {
            scope.spawn(move || match complaint(check, *fault) {
                Some(said) if said.contains(words) => None,
                said => Some(format!("{fault:?} in {check}: {said:?}")),
            })
        });
        let running: Vec<_> = each.collect();
        running.into_iter().filter_map(|check| check.join().expect("an answer")).collect()
    });
    assert!(missed.is_empty(), "not caught as it should be:\n{}", missed.join("\n"));
}

#[test]
fn an_adapter_without_a_fault_passes_the_same_checks() {
    for (fault, check, _) in CAUGHT {
        // Of what the mock can do, it would be skipped.
        if *fault != Fault::RefusesWithoutAPlace {
            assert_eq!(complaint(check, Fault::Nothing), None, "{check}");
        }
    }
}

/// An engine that terminates a worker so many times.
async fn engine_that_terminates(times: usize) -> Arc<Book> {
    let book = Arc::new(Book::default());
    let inner = Arc::clone(&Pool::mock(Mock::new()).adapter);
    let adapter = Counting { inner, book: Arc::clone(&book) };
    let id = WorkerId::new("w1").expect("an id");
    let output = Output::new(id.clone(), Logging::default());
    let spawner = Spawner::new(None, id, "pool".into(), (1, 1 << 20), output);
    let worker = adapter.start_worker(spawner).await.unwrap_or_else(|error| panic!("{error}"));
    for _ in 0..times {
        worker.terminate(Reason::Stopped).await;
    }
    book
}

#[tokio::test]
async fn an_engine_that_forgets_a_worker_or_ends_it_twice_is_caught() {
    engine_that_terminates(1).await.assert_balanced();
    for times in [0, 2] {
        let book = engine_that_terminates(times).await;
        let caught = catch_unwind(AssertUnwindSafe(|| book.assert_balanced()));
        let said = caught.expect_err("it is caught").downcast::<String>().expect("words");
        assert!(said.contains(&format!("terminated {times} times")), "{said}");
    }
}

#[test]
fn no_check_has_the_name_of_another_one() {
    let mut names: Vec<&str> = super::CHECKS.iter().map(|check| check.name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(count > 50, "{count}");
}
