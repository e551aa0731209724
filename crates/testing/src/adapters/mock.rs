//! The conformance worker as a [`Mock`], and the features that a mock does not have.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;

use super::{Capability, Feature, Subject, Way};
use crate::{PoolOptions, RemoteError, RemoteErrorKind, Value};
use snakepit_adapters::mock::{Crash, Mock, MockError};

/// Mock workers as the subject of the suite.
#[derive(Clone, Copy, Debug)]
pub struct MockSubject;

impl Subject for MockSubject {
    fn pool(&self, _way: Way) -> PoolOptions {
        snakepit_adapters::mock::pool(worker())
    }

    fn capability(&self, feature: Feature) -> Capability {
        match feature {
            Feature::Processes => Capability::Absent("a mock is not a process"),
            Feature::Prints => Capability::Absent("what a mock prints is the host's"),
            Feature::Deadline | Feature::Sessions | Feature::Metadata | Feature::Tools => {
                Capability::Absent("a mock's function sees its arguments only")
            }
            Feature::RefusedResults => Capability::Absent("every value of a mock can be sent"),
            Feature::Garbage => Capability::Absent("a mock has no protocol"),
            Feature::Commands
            | Feature::Concurrency
            | Feature::WideIntegers
            | Feature::BigIntegers
            | Feature::DistinctFloats
            | Feature::NonFiniteFloats
            | Feature::Bytes
            | Feature::DateTimes
            | Feature::AnyKeys
            | Feature::ErrorTypes
            | Feature::Tracebacks
            | Feature::Causes
            | Feature::Streams
            | Feature::Backpressure
            | Feature::Cancel
            | Feature::Crash => Capability::Present,
        }
    }
}

fn integer(args: &Value, name: &str) -> Result<i64, MockError> {
    args.get(name).and_then(Value::as_i64).ok_or_else(|| format!("{name} is an integer").into())
}

fn words(args: &Value, name: &str) -> Result<String, MockError> {
    args.get(name)
        .and_then(Value::as_str)
        .map(str::to_owned)
        .ok_or_else(|| format!("{name} is a text").into())
}

fn note(path: &str, line: &str) -> Result<(), MockError> {
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path)?;
    Ok(writeln!(file, "{line}")?)
}

fn error(args: &Value) -> Result<RemoteError, MockError> {
    let error = RemoteError::new(RemoteErrorKind::Exception, words(args, "message")?);
    Ok(error.type_name("mock.ConformanceError").traceback("in deep_inside\n"))
}

/// Records a cancellation: a mock's function is cancelled by being dropped.
struct NotesCancel(Option<String>);

impl Drop for NotesCancel {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            let _ = note(&path, "cancelled");
        }
    }
}

pub(super) async fn wait(args: Value) -> Result<Value, MockError> {
    let (started, release) = (words(&args, "started")?, words(&args, "release")?);
    note(&started, "started")?;
    let mut cancelled = NotesCancel(Some(started));
    let mut looks = tokio::time::interval(Duration::from_millis(5));
    while !Path::new(&release).exists() {
        looks.tick().await;
    }
    cancelled.0 = None;
    Ok("released".into())
}

fn count(n: i64) -> impl futures_core::Stream<Item = Result<Value, MockError>> + Send {
    stream::iter((0..n).map(|n| Ok(n.into())))
}

fn count_for_ever(
    args: &Value,
) -> Result<impl futures_core::Stream<Item = Result<Value, MockError>> + use<>, MockError> {
    let (made, size) = (words(args, "made")?, integer(args, "size")?);
    let cancelled = NotesCancel(Some(format!("{made}.ended")));
    Ok(stream::repeat(()).map(move |()| {
        let _ = &cancelled;
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(&made)?;
        file.write_all(b".")?;
        Ok("x".repeat(size as usize).into())
    }))
}

/// Returns the worker of `docs/adapters-contract.md`, within the limits of a mock.
pub(super) fn worker() -> Mock {
    Mock::new()
        .command("echo", |args| async move { Ok(args.get("value").cloned().unwrap_or_default()) })
        .command("add", |args| async move { Ok((integer(&args, "a")? + integer(&args, "b")?).into()) })
        .command("fail", |args| async move { Err(error(&args)?.into()) })
        .command("fail_because", |args| async move {
            let cause = RemoteError::new(RemoteErrorKind::Exception, "the root of it");
            Err(error(&args)?.cause(cause).into())
        })
        .stream("count", |args| match integer(&args, "n") {
            Ok(n) => count(n).left_stream(),
            Err(error) => stream::iter([Err(error)]).right_stream(),
        })
        .stream("count_and_fail", |args| match integer(&args, "n") {
            Ok(n) => {
                count(n).chain(stream::iter([error(&args).and_then(|error| Err(error.into()))])).left_stream()
            }
            Err(error) => stream::iter([Err(error)]).right_stream(),
        })
        .stream("count_for_ever", |args| match count_for_ever(&args) {
            Ok(items) => items.left_stream(),
            Err(error) => stream::iter([Err(error)]).right_stream(),
        })
        .command("wait", wait)
        .command("stubborn", |args| async move {
            note(&words(&args, "started")?, "started")?;
            std::future::pending().await
        })
        .command("exit", |args| async move {
            Err(Crash(format!("it exits with {}", integer(&args, "status")?)).into())
        })
}
