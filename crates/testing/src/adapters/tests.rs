//! Tests of the suite itself: it passes a mock, and rejects mocks that are broken on purpose, each with its own
//! message.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::StreamExt;
use futures_util::future::{self, BoxFuture, FutureExt};
use futures_util::stream;
use tokio::sync::watch;

use super::recording::{Recording, RecordingAdapter};
use super::{Capability, CheckVerdict, Feature, MockSubject, Subject, Way, mock};
use crate::adapter::{
    Adapter, CancelStage, Handle, Introduction, ProtocolFault, Reason, Spawner, StartError,
};
use crate::call::{Call, CallId, Portion, RemoteError, RemoteErrorKind};
use crate::custody::{self, WorkerId};
use crate::value::Encoded;
use crate::{PoolOptions, Value};
use snakepit_adapters::mock::{Mock, pool as mock_pool};
use snakepit_core::worker::Output;
use snakepit_telemetry::Logging;

/// The fault of an adapter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AdapterFault {
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

/// A mock with a fault in its commands or in the adapter around it.
struct FaultySubject(AdapterFault);

impl Subject for FaultySubject {
    fn pool(&self, _way: Way) -> PoolOptions {
        mock_pool(commands(self.0)).wrap_adapter(|inner| {
            Arc::new(FaultyAdapter { inner, fault: self.0, dead: watch::Sender::new(false) })
        })
    }

    fn capability(&self, feature: Feature) -> Capability {
        match (feature, self.0) {
            (Feature::Bytes, AdapterFault::RefusesWithoutAPlace) => Capability::Absent("it is broken"),
            _ => MockSubject.capability(feature),
        }
    }
}

fn commands(fault: AdapterFault) -> Mock {
    let sound = mock::worker();
    match fault {
        AdapterFault::MixesUpAnswers => {
            let last = Arc::new(Mutex::new(Value::from("the first")));
            sound.command("echo", move |args| {
                let value = args.get("value").cloned().unwrap_or_default();
                let other =
                    std::mem::replace(&mut *last.lock().unwrap_or_else(PoisonError::into_inner), value);
                future::ready(Ok(other))
            })
        }
        AdapterFault::OneCallAtATime => {
            let turn = Arc::new(tokio::sync::Mutex::new(()));
            sound.command("wait", move |args| {
                let turn = Arc::clone(&turn);
                async move {
                    let _mine = turn.lock().await;
                    mock::wait(args).await
                }
            })
        }
        AdapterFault::CutsLongTexts => sound.command("echo", |args| async move {
            Ok(match args.get("value") {
                Some(Value::Str(text)) => text.chars().take(64 << 10).collect::<String>().into(),
                value => value.cloned().unwrap_or_default(),
            })
        }),
        AdapterFault::FloatsBecomeIntegers => sound.command("echo", |args| async move {
            Ok(match args.get("value") {
                Some(Value::Float(number)) if number.fract() == 0.0 => (*number as i64).into(),
                value => value.cloned().unwrap_or_default(),
            })
        }),
        AdapterFault::BytesBecomeText => sound.command("echo", |args| async move {
            Ok(match args.get("value") {
                Some(Value::Bytes(bytes)) => String::from_utf8_lossy(bytes).into_owned().into(),
                value => value.cloned().unwrap_or_default(),
            })
        }),
        AdapterFault::RefusesWithoutAPlace => sound.command("echo", |_| async move {
            Err(RemoteError::new(RemoteErrorKind::BadValue, "no bytes here, wherever they are").into())
        }),
        AdapterFault::LosesErrorTypes => {
            sound.command("fail", |_| async move { Err("it went wrong".into()) })
        }
        AdapterFault::ErrorsBecomeValues => sound.command("fail", |_| async move { Ok("an error".into()) }),
        AdapterFault::LosesTheLastItem => sound.stream("count", |args| {
            let n = args.get("n").and_then(Value::as_i64).unwrap_or_default();
            stream::iter((0..n - 1).map(|n| Ok(n.into())))
        }),
        AdapterFault::LosesTheErrorOfAStream => {
            sound.stream("count_and_fail", |_| stream::iter((0..3).map(|n| Ok(Value::from(n)))).take(3))
        }
        AdapterFault::Nothing
        | AdapterFault::ReadyTooEarly
        | AdapterFault::ForgetsCalls
        | AdapterFault::AnswersUnknownCommands
        | AdapterFault::IgnoresCredit
        | AdapterFault::IgnoresCancels
        | AdapterFault::HidesDeaths
        | AdapterFault::DiesTogether
        | AdapterFault::KeepsItsCalls
        | AdapterFault::KeepsLateCalls => sound,
    }
}

struct FaultyAdapter {
    inner: Arc<dyn Adapter>,
    fault: AdapterFault,
    /// Whether one of the workers has died.
    dead: watch::Sender<bool>,
}

impl Adapter for FaultyAdapter {
    fn start_worker(&self, spawner: Spawner) -> BoxFuture<'_, Result<Arc<dyn Handle>, StartError>> {
        async move {
            let inner = self.inner.start_worker(spawner).await?;
            let worker = FaultyHandle {
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

struct FaultyHandle {
    inner: Arc<dyn Handle>,
    fault: AdapterFault,
    given: Mutex<usize>,
    kept: Mutex<Vec<Call>>,
    is_over: AtomicBool,
    dead: watch::Sender<bool>,
}

impl Handle for FaultyHandle {
    fn process(&self) -> Option<&custody::WorkerProcess> {
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
            AdapterFault::ReadyTooEarly if *given == 1 => {
                call.finish(Err(RemoteError::new(RemoteErrorKind::Refused, "it is still starting")));
            }
            // The call never ends.
            AdapterFault::ForgetsCalls if given.is_multiple_of(7) => std::mem::forget(call),
            AdapterFault::AnswersUnknownCommands
                if !self.introduction().commands.contains(&call.command().into()) =>
            {
                call.finish(Ok(Encoded::nil()));
            }
            AdapterFault::KeepsItsCalls if call.command() == "wait" => {
                call_started(&call);
                self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(call);
            }
            AdapterFault::KeepsLateCalls if self.is_over.load(Ordering::SeqCst) => std::mem::forget(call),
            AdapterFault::IgnoresCredit => {
                Arc::clone(&inner).execute(call);
                inner.grant(id, Portion { items: 600, bytes: 1 << 40 });
            }
            _ => inner.execute(call),
        }
    }

    fn cancel(&self, call: CallId, stage: CancelStage) {
        if self.fault != AdapterFault::IgnoresCancels {
            self.inner.cancel(call, stage);
        }
    }

    fn grant(&self, call: CallId, more: Portion) {
        self.inner.grant(call, more);
    }

    fn broken(&self) -> BoxFuture<'_, ProtocolFault> {
        async {
            match self.fault {
                AdapterFault::HidesDeaths => future::pending().await,
                AdapterFault::DiesTogether => {
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
        if self.fault == AdapterFault::KeepsItsCalls {
            std::mem::take(&mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner))
                .into_iter()
                .for_each(std::mem::forget);
        }
        self.inner.terminate(reason)
    }
}

/// Does the same as the first step of `wait`.
fn call_started(call: &Call) {
    let crate::call::Input::One(args) = call.input() else { panic!("one call") };
    let args = args.to_value().expect("arguments");
    std::fs::write(args["started"].as_str().expect("a path"), "started\n").expect("noted");
}

/// Returns the message with which a check fails, or `None` if the check holds.
fn complaint(check: &str, fault: AdapterFault) -> Option<String> {
    let outcome = catch_unwind(AssertUnwindSafe(|| super::run(check, &FaultySubject(fault))));
    match outcome {
        Ok(CheckVerdict::Held) => None,
        Ok(CheckVerdict::Skipped(why)) => panic!("{check} was skipped: {why}"),
        Err(panic) => {
            let said = panic.downcast_ref::<&str>().map(|said| (*said).to_owned());
            Some(said.or_else(|| panic.downcast_ref::<String>().cloned()).expect("words"))
        }
    }
}

/// The check that catches each fault, and the words of its message.
const CAUGHT: &[(AdapterFault, &str, &str)] = &[
    (AdapterFault::ReadyTooEarly, "a_worker_that_is_ready_answers", "it is still starting"),
    (AdapterFault::ForgetsCalls, "many_calls_at_once_get_their_own_answers", "echo: not within"),
    (AdapterFault::MixesUpAnswers, "many_calls_at_once_get_their_own_answers", "the answer of another one"),
    (AdapterFault::OneCallAtATime, "calls_run_at_the_same_time_where_they_may", "wait has begun: not within"),
    (AdapterFault::CutsLongTexts, "large_values_travel_both_ways", "bytes came back as"),
    (AdapterFault::FloatsBecomeIntegers, "floats_stay_floats", "came back as"),
    (AdapterFault::BytesBecomeText, "byte_strings_come_back_or_are_refused", "came back as"),
    (AdapterFault::RefusesWithoutAPlace, "byte_strings_come_back_or_are_refused", "is refused at \"\""),
    (AdapterFault::LosesErrorTypes, "an_error_tells_its_type", "its type is \"\""),
    (AdapterFault::ErrorsBecomeValues, "an_error_says_what_happened", "fail does not fail"),
    (
        AdapterFault::AnswersUnknownCommands,
        "an_unknown_command_is_an_error_that_says_so",
        "does not exist answers",
    ),
    (AdapterFault::LosesTheLastItem, "a_stream_brings_its_values_in_order", "values came as"),
    (
        AdapterFault::LosesTheErrorOfAStream,
        "a_stream_that_fails_brings_what_it_had",
        "and not with its error",
    ),
    (AdapterFault::IgnoresCredit, "a_slow_reader_holds_the_worker_back", "values ahead of a reader"),
    (
        AdapterFault::IgnoresCancels,
        "a_cancelled_call_does_not_cost_the_worker",
        "a cancel has cost the worker",
    ),
    (AdapterFault::HidesDeaths, "a_worker_that_exits_fails_its_call_with_an_autopsy", "exit: not within"),
    (AdapterFault::DiesTogether, "a_death_harms_no_neighbour", "the neighbour's call has ended"),
    (AdapterFault::KeepsItsCalls, "a_broken_worker_is_terminated_once", "the answer of wait: not within"),
    (
        AdapterFault::KeepsLateCalls,
        "a_call_that_comes_after_the_end_is_answered",
        "after the end of its worker: not within",
    ),
];

#[test]
fn a_broken_adapter_fails_with_a_message_that_names_the_fault() {
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
        // Without the fault, the mock accepts byte strings, and the check would not test a refusal.
        if *fault != AdapterFault::RefusesWithoutAPlace {
            assert_eq!(complaint(check, AdapterFault::Nothing), None, "{check}");
        }
    }
}

/// Returns the recording of an engine that terminates a worker this many times.
async fn engine_that_terminates(times: usize) -> Arc<Recording> {
    let recording = Arc::new(Recording::default());
    let inner = Arc::clone(mock_pool(Mock::new()).adapter());
    let adapter = RecordingAdapter { inner, recording: Arc::clone(&recording) };
    let id = WorkerId::new("w1").expect("an id");
    let output = Output::new(id.clone(), Logging::default());
    let spawner = Spawner::new(None, id, "pool".into(), (1, 1 << 20), output);
    let worker = adapter.start_worker(spawner).await.unwrap_or_else(|error| panic!("{error}"));
    for _ in 0..times {
        worker.terminate(Reason::Stopped).await;
    }
    recording
}

#[tokio::test]
async fn an_engine_that_forgets_a_worker_or_ends_it_twice_is_caught() {
    engine_that_terminates(1).await.assert_balanced();
    for times in [0, 2] {
        let recording = engine_that_terminates(times).await;
        let caught = catch_unwind(AssertUnwindSafe(|| recording.assert_balanced()));
        let said = caught.expect_err("it is caught").downcast::<String>().expect("words");
        assert!(said.contains(&format!("terminated {times} times")), "{said}");
    }
}

#[test]
fn the_names_of_checks_are_unique() {
    let mut names: Vec<&str> = super::CHECKS.iter().map(|check| check.name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(count > 50, "{count}");
}
