//! The texts of all errors of calls, workers and pools.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use snakepit_error_texts::{ErrorTexts, every_variant};
use snakepit_policy::quarantine::SuspectList;
use snakepit_policy::{Fingerprint, NoRetry};

use crate::adapter::{BadHeader, CreditUnit, FrameKind, ProtocolFault, ReadinessHint, WorkerChannel};
use crate::call::error::autopsy;
use crate::custody::{ExitStatus, InvalidId, Pid, SpawnError, WorkerId};
use crate::environment::EnvironmentError;
use crate::hardware::GpuError;
use crate::telemetry::TraceContext;
use crate::tool::StoreError;
use crate::value::{Encoded, ValueError};
use crate::{
    Autopsy, CallError, CallId, NoWorkersReason, ReloadError, RemoteError, RemoteErrorKind, StartError,
};

const DEGRADED: &str = "worker numbers-4 ended before it was ready, with exit status 1";

fn pool() -> String {
    "numbers".into()
}

fn command() -> String {
    "add".into()
}

fn worker() -> WorkerId {
    WorkerId::new("numbers-4").expect("an id")
}

fn no_such_type() -> ValueError {
    ValueError::unsendable("a file has no form here: send its path").under("path")
}

/// An exception of a worker, with its cause.
fn exception() -> RemoteError {
    let cause =
        RemoteError::new(RemoteErrorKind::Exception, "division by zero").type_name("ZeroDivisionError");
    RemoteError::new(RemoteErrorKind::Exception, "b must not be 0")
        .type_name("ValueError")
        .traceback("Traceback (most recent call last):\n  File \"worker.py\", line 3, in add")
        .cause(cause)
}

fn died(attempts: u32, no_retry: Option<NoRetry>, degraded: Option<&str>) -> CallError {
    CallError::WorkerDied {
        call: CallId::new(7),
        command: command(),
        autopsy: Box::new(autopsy::crash()),
        attempts,
        no_retry,
        degraded: degraded.map(Arc::from),
    }
}

#[test]
fn every_error_says_the_thing_the_place_and_the_way_out() {
    let mut texts = ErrorTexts::new();
    let fingerprint = SuspectList::<Autopsy>::new(None).fingerprint("add", &Encoded::empty_map());
    errors_of_calls(&mut texts, fingerprint);
    faults_of_protocols(&mut texts);
    errors_of_starts(&mut texts);
    errors_of_reloads_and_stores(&mut texts);
    // Fingerprints are keyed with a number that each process draws.
    insta::assert_snapshot!(texts.to_string().replace(&fingerprint.to_string(), "6c62272e07bb0142"));
}

fn errors_of_calls(texts: &mut ErrorTexts, fingerprint: Fingerprint) {
    let degraded = || Some(Arc::from(DEGRADED));
    let after = Duration::from_secs(30);
    every_variant!(texts, CallError {
        Remote => [CallError::Remote(Box::new(exception()))],
        WorkerDied => [
            died(1, None, None),
            died(1, Some(NoRetry::Deadline), None),
            died(3, Some(NoRetry::Attempts), Some(DEGRADED)),
        ],
        Timeout => [
            CallError::Timeout { command: command(), after, stack: None, output: Vec::new(), degraded: None },
            CallError::Timeout {
                command: command(),
                after,
                stack: Some("  File \"worker.py\", line 9 in add\n".into()),
                output: vec!["loading the model".into()],
                degraded: degraded(),
            },
        ],
        QueueTimeout => [
            CallError::QueueTimeout { pool: pool(), command: command(), after, depth: 12, degraded: None },
            CallError::QueueTimeout { pool: pool(), command: command(), after, depth: 12, degraded: degraded() },
        ],
        Saturated => [CallError::Saturated { pool: pool(), depth: 1000, degraded: None }],
        SessionBusy => [CallError::SessionBusy { session: "ann".into(), worker: "numbers-4".into() }],
        SessionLost => [CallError::SessionLost { session: "ann".into(), worker: "numbers-4".into() }],
        TooManySessions => [CallError::TooManySessions { pool: pool(), limit: 10_000 }],
        Cycle => [CallError::Cycle {
            depth: 16,
            cycle: "numbers.add → tool ask → numbers.add → tool ask → numbers.add".into(),
        }],
        NoSuchPool => [CallError::NoSuchPool { name: "nubmers".into(), known: "numbers, texts".into() }],
        NoWorkers => [
            CallError::NoWorkers { pool: pool(), reason: NoWorkersReason::ScaledToZero, degraded: None },
            CallError::NoWorkers { pool: pool(), reason: NoWorkersReason::NotReady { after }, degraded: None },
            CallError::NoWorkers { pool: pool(), reason: NoWorkersReason::Failed(DEGRADED.into()), degraded: None },
            CallError::NoWorkers { pool: pool(), reason: NoWorkersReason::Failed(DEGRADED.into()), degraded: degraded() },
        ],
        Quarantined => [CallError::Quarantined {
            command: command(),
            fingerprint,
            autopsies: vec![Arc::new(autopsy::crash()), Arc::new(autopsy::crash())],
        }],
        CircuitOpen => [
            CallError::CircuitOpen { pool: pool(), command: None, retry_in: Duration::from_secs(3) },
            CallError::CircuitOpen {
                pool: pool(),
                command: Some(command()),
                retry_in: Duration::from_secs(3),
            },
        ],
        Arguments => [CallError::Arguments { command: command(), source: no_such_type() }],
        Trace => [CallError::Trace {
            command: command(),
            source: TraceContext::new("4bf92f3577b34da6").expect_err("too short"),
        }],
        Result => [CallError::Result {
            command: command(),
            source: Encoded::encode("three").and_then(|it| it.decode::<i64>()).expect_err("a string"),
        }],
        Cancelled => [CallError::Cancelled],
        Stopped => [CallError::Stopped],
    });
}

fn faults_of_protocols(texts: &mut ErrorTexts) {
    let unreadable = no_such_type;
    every_variant!(texts, ProtocolFault {
        Closed => [ProtocolFault::Closed(WorkerChannel::Socket), ProtocolFault::Closed(WorkerChannel::StandardOutput)],
        CutFrame => [ProtocolFault::CutFrame],
        Broke => [ProtocolFault::broke(WorkerChannel::Connection, "Connection reset by peer (os error 104)")],
        Ended => [ProtocolFault::Ended],
        EndedByHost => [ProtocolFault::EndedByHost],
        BeforeReady => [ProtocolFault::BeforeReady(Box::new(ProtocolFault::Ended))],
        CheckFailed => [ProtocolFault::CheckFailed("its health hook returned False".into())],
        RuntimeDropped => [ProtocolFault::RuntimeDropped],
        AdapterPanicked => [ProtocolFault::AdapterPanicked("index out of bounds".into())],
        BadHeader => [ProtocolFault::BadHeader(BadHeader::Kind(71))],
        UnreadableFrame => [ProtocolFault::UnreadableFrame { kind: FrameKind::Item, error: unreadable() }],
        HostFrame => [ProtocolFault::HostFrame(FrameKind::Hello)],
        LineTooLong => [ProtocolFault::LineTooLong],
        UnreadableLog => [ProtocolFault::UnreadableLog(unreadable())],
        Rejection => [ProtocolFault::Rejection("a frame of kind 71 is unknown".into())],
        Version => [ProtocolFault::Version { worker: "2".into(), engine: 1 }],
        ReadyTwice => [ProtocolFault::ReadyTwice],
        ErrorWithoutCall => [ProtocolFault::ErrorWithoutCall],
        BadReadyLine => [ProtocolFault::BadReadyLine {
            reason: "its port is not a number".into(),
            line: "{\"status\": \"ready\", \"port\": \"http\"}".into(),
        }],
        StrangePid => [ProtocolFault::StrangePid {
            announced: 1,
            started: Pid::new(4321).expect("a pid"),
        }],
        NoAddress => [ProtocolFault::NoAddress],
        Unreachable => [ProtocolFault::unreachable("Connection refused (os error 111)")],
        UnprovenListener => [ProtocolFault::UnprovenListener("no process of the worker listens on port 8000".into())],
        NotHttp2 => [ProtocolFault::NotHttp2 { error: "the preface is missing".into() }],
        UnknownRpc => [ProtocolFault::UnknownRpc { rpc: "Hello" }],
        FailedRpc => [ProtocolFault::FailedRpc { rpc: "Hello", status: "Internal".into() }],
        UnknownEncoding => [ProtocolFault::UnknownEncoding(9)],
        UnsentAnswer => [ProtocolFault::UnsentAnswer { call: 7 }],
        OneAnswerForMany => [ProtocolFault::OneAnswerForMany { call: 7, kind: FrameKind::Result }],
        ResultsForOne => [ProtocolFault::ResultsForOne { call: 7 }],
        TooManyResults => [ProtocolFault::TooManyResults { call: 7, results: 3, inputs: 2 }],
        EmptyResults => [ProtocolFault::EmptyResults { call: 7 }],
        CreditExceeded => [ProtocolFault::CreditExceeded { call: 7, unit: CreditUnit::Bytes }],
        ToolIdInUse => [ProtocolFault::ToolIdInUse { id: 3 }],
        UnreadRefusals => [ProtocolFault::UnreadRefusals],
        UnreadableToolArguments => [ProtocolFault::UnreadableToolArguments(unreadable())],
        Other => [ProtocolFault::from("it sang")],
    });
}

fn errors_of_starts(texts: &mut ErrorTexts) {
    let output = || vec!["ModuleNotFoundError: No module named 'torch'".to_owned()];
    let after = Duration::from_mins(1);
    let awaited = ReadinessHint {
        missing: "no ready line came".into(),
        way_out: "print {\"status\":\"ready\"} once it serves, or raise worker_start_timeout".into(),
    };
    every_variant!(texts, StartError {
        Spawn => [StartError::Spawn(SpawnError::NotFound { program: "pyhton3".into() })],
        Exited => [
            StartError::Exited { worker: worker(), status: ExitStatus::Code(1), output: output() },
            StartError::Exited {
                worker: worker(),
                status: ExitStatus::Code(1),
                output: vec!["ModuleNotFoundError: No module named 'snakepit'".into()],
            },
        ],
        Timeout => [
            StartError::Timeout { worker: worker(), after, awaited: None, output: output() },
            StartError::Timeout { worker: worker(), after, awaited: Some(awaited), output: Vec::new() },
        ],
        Failed => [StartError::Failed { worker: worker(), error: Box::new(exception()) }],
        WarmUp => [StartError::WarmUp {
            worker: worker(),
            command: "load".into(),
            reason: "FileNotFoundError: model.bin".into(),
            output: output(),
        }],
        Unhealthy => [StartError::Unhealthy { worker: worker(), reason: "its health hook returned false".into() }],
        Protocol => [StartError::Protocol {
            worker: worker(),
            fault: "it sent a frame of the unknown kind 71".into(),
            output: output(),
        }],
        Environment => [StartError::Environment(EnvironmentError::NoUv)],
        Gpus => [StartError::Gpus(GpuError::EmptyList)],
        Stopped => [StartError::Stopped],
        NoSuchFile => [StartError::NoSuchFile { path: "worker.py".into() }],
        NoCommand => [StartError::NoCommand],
        Name => [StartError::Name(InvalidId::Worker("my pool-1".into()))],
        Settings => [StartError::Settings(
            "`debug` gives a worker the terminal, but this adapter reads what it writes to standard output: leave \
             `debug` out"
                .into(),
        )],
        NoCustody => [StartError::NoCustody],
        NotPrepared => [StartError::NotPrepared],
        ShuttingDown => [StartError::ShuttingDown],
        KeepsDying => [StartError::KeepsDying(autopsy::crash().to_string())],
        System => [StartError::System {
            worker: worker(),
            what: "a socket",
            source: io::Error::from_raw_os_error(24),
        }],
        Introduction => [StartError::Introduction {
            worker: worker(),
            source: Encoded::encode(&[1]).and_then(|it| it.decode::<String>()).expect_err("a list"),
        }],
    });
}

fn errors_of_reloads_and_stores(texts: &mut ErrorTexts) {
    every_variant!(texts, ReloadError {
        Aborted => [ReloadError::Aborted { pool: pool(), reason: DEGRADED.into() }],
        UnderWay => [ReloadError::UnderWay { pool: pool() }],
        OtherName => [ReloadError::OtherName { pool: pool(), other: "texts".into() }],
        Stopped => [ReloadError::Stopped],
    });
    every_variant!(texts, StoreError {
        NoSession => [StoreError::NoSession("ann".into())],
        NotInSession => [StoreError::NotInSession],
        OtherSession => [StoreError::OtherSession],
        Full => [StoreError::Full { session: "ann".into(), bytes: 70_000_000 }],
        Unreadable => [StoreError::Unreadable(no_such_type())],
    });
}
