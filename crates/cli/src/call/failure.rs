//! Describes a failed call: its exit status, its text, its JSON.

use serde_json::json;
use snakepit::call::RemoteErrorKind;
use snakepit::{CallError, EngineError, RemoteError, StartError};

use crate::shared::exit_status::{FAILED, TIMED_OUT};
use crate::shared::failure::{CliFailure, chain};

/// Describes a failed call. `commands` are the commands of the worker.
pub(super) fn of_call(command: &str, error: &CallError, commands: &[String]) -> CliFailure {
    let failure = CliFailure::of(error).status(FAILED);
    match error {
        CallError::Remote(error) => of_worker(command, error, commands),
        CallError::Timeout { .. } => kind(
            "timeout",
            failure.status(TIMED_OUT).hint(format!(
                "allow {command} more time with --timeout, or with call_timeout in the configuration"
            )),
        ),
        CallError::QueueTimeout { .. } => kind("timeout", named(command, error).status(TIMED_OUT)),
        CallError::WorkerDied { .. } => kind("worker_died", named(command, error)),
        _ => kind("call", named(command, error)),
    }
}

fn named(command: &str, error: &CallError) -> CliFailure {
    let text = chain(error);
    let text = if text.contains(command) { text } else { format!("{command}: {text}") };
    CliFailure::internal(text).status(FAILED)
}

fn of_worker(command: &str, error: &RemoteError, commands: &[String]) -> CliFailure {
    let failure = remote(command, error);
    match &error.kind {
        RemoteErrorKind::UnknownCommand if !commands.is_empty() => {
            failure.hint(format!("its commands are {}", commands.join(", ")))
        }
        RemoteErrorKind::Streaming => failure.hint("add --stream to print its values as they arrive"),
        RemoteErrorKind::BadArgument => {
            failure.hint("write arguments as key=text or key:=json; numbers need the colon: n:=3")
        }
        _ => failure,
    }
}

/// Describes a worker that could not start.
pub(super) fn of_start(error: &EngineError) -> CliFailure {
    let failure = CliFailure::of(error);
    let failure = match error {
        EngineError::Custody(error) => CliFailure::state(error),
        EngineError::Start { source: StartError::Failed { worker, error }, .. } => {
            return remote(&format!("worker {worker} cannot start"), error);
        }
        EngineError::Start { source: StartError::Timeout { .. }, .. } => {
            return kind("timeout", failure.status(TIMED_OUT));
        }
        EngineError::Start { source: StartError::NoSuchFile { .. }, .. } => failure.hint(
            "paths in a configuration are relative to its directory; `snakepit doctor` shows which Python is found",
        ),
        EngineError::Start {
            source:
                StartError::Spawn(_)
                | StartError::NoCommand
                | StartError::Name(_)
                | StartError::Settings(_)
                | StartError::NoCustody
                | StartError::NotPrepared
                | StartError::ShuttingDown
                | StartError::KeepsDying(_)
                | StartError::Environment(_)
                | StartError::Gpus(_)
                | StartError::System { .. },
            ..
        } => failure,
        // The cause is in the worker's code.
        EngineError::Start { .. } => failure.status(FAILED),
        _ => failure,
    };
    kind("start", failure)
}

/// Describes a call that was not made because time ran out before the worker was ready.
pub(super) fn not_called(command: &str, why: &str, hint: &str) -> CliFailure {
    let text = format!("{command} was not called: {why}");
    let hint = format!("--timeout includes the start of the worker{hint}");
    kind("timeout", CliFailure::internal(text).status(TIMED_OUT).hint(hint))
}

/// Describes a result that has no JSON form.
pub(super) fn of_format(command: &str, error: &serde_json::Error) -> CliFailure {
    let failure = CliFailure::new(format!("the result of {command} cannot be written as JSON"), error);
    kind("output", failure.status(FAILED).hint("omit --json to see it"))
}

pub(super) fn of_output(error: &std::io::Error) -> CliFailure {
    kind("output", CliFailure::new("cannot write to standard output", error))
}

fn kind(kind: &str, failure: CliFailure) -> CliFailure {
    let message = failure.message();
    failure.json(json!({ "kind": kind, "message": message }))
}

/// Describes an error of a worker with its notes, its traceback and its causes.
fn remote(what: &str, error: &RemoteError) -> CliFailure {
    let mut lines = Vec::new();
    for (depth, error) in error.chain().enumerate() {
        let caused = if depth > 0 { "caused by " } else { "" };
        lines.push(format!("{caused}{error}"));
        lines.extend(error.notes.iter().map(|note| format!("  note: {note}")));
        lines.extend(error.traceback.iter().map(|traceback| traceback.trim_end().to_owned()));
    }
    CliFailure::internal(format!("{what}: {}", lines.join("\n"))).status(FAILED).json(json!(error))
}
