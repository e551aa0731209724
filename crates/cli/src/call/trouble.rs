//! What went wrong with a call: its exit status, its words, its JSON.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value as Json, json};
use snakepit::{CallError, EngineError, RemoteError, StartError};

use crate::say::{self, chain};

const FAILED: u8 = 1;
const TIMED_OUT: u8 = 124;

pub(super) enum Trouble<'a> {
    /// The call came to an error.
    Call { command: &'a str, error: &'a CallError, commands: Vec<String> },
    /// The worker could not be started.
    Start(&'a EngineError),
    /// The time was over before the worker was ready.
    StartTimeout { command: &'a str, after: Duration },
    /// The worker was not ready before the time was over, and this is what is known of it.
    LateWorker { command: &'a str, error: &'a EngineError },
    /// The result cannot be said in JSON.
    Form { command: &'a str, error: &'a serde_json::Error },
    /// The result cannot be printed.
    Print(&'a std::io::Error),
}

impl Trouble<'_> {
    pub(super) fn status(&self) -> u8 {
        match self {
            Self::Call { error: CallError::Timeout { .. } | CallError::QueueTimeout { .. }, .. }
            | Self::StartTimeout { .. }
            | Self::LateWorker { .. }
            | Self::Start(EngineError::Start { source: StartError::Timeout { .. }, .. }) => TIMED_OUT,
            Self::Start(EngineError::Start { source, .. }) if !is_ours(source) => FAILED,
            Self::Start(_) | Self::Print(_) => say::OURS,
            Self::Call { .. } | Self::Form { .. } => FAILED,
        }
    }

    /// For people, with a line break at its end.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Call { command, error: CallError::Remote(error), commands } => {
                format!("snakepit: {command}: {}{}", remote(error), hint(error, commands))
            }
            Self::Call { command, error: error @ CallError::Timeout { .. }, .. } => format!(
                "snakepit: {}\n  --timeout, or call_timeout in the configuration, gives {command} more time\n",
                chain(*error)
            ),
            Self::Call { command, error, .. } => {
                let text = chain(*error);
                if text.contains(*command) {
                    format!("snakepit: {text}\n")
                } else {
                    format!("snakepit: {command}: {text}\n")
                }
            }
            Self::Start(EngineError::Start { source: StartError::Failed { worker, error }, .. }) => {
                format!("snakepit: worker {worker} cannot start: {}", remote(error))
            }
            Self::Start(EngineError::Custody(error)) => {
                format!(
                    "snakepit: {}\n  --state-dir or SNAKEPIT_STATE_DIR name another place to record runs\n",
                    chain(error)
                )
            }
            Self::Start(error @ EngineError::Start { source: StartError::Missing(_), .. }) => format!(
                "snakepit: {}\n  paths in a configuration are relative to it; `snakepit doctor` says which Python there is\n",
                chain(*error)
            ),
            Self::Start(error) => format!("snakepit: {}\n", chain(*error)),
            Self::LateWorker { command, error } => format!(
                "snakepit: {command} was not called: {}\n  --timeout counts from the start of the worker on\n",
                chain(*error)
            ),
            Self::StartTimeout { command, after } => format!(
                "snakepit: {command} was not called: its worker was not ready within {after:?}\n  \
                 --timeout counts from the start of the worker on; `-v` shows what the worker prints\n"
            ),
            Self::Form { command, error } => format!(
                "snakepit: the result of {command} cannot be written as JSON: {error}\n  without --json it is shown\n"
            ),
            Self::Print(error) => format!("snakepit: cannot write to standard output: {error}\n"),
        }
    }

    pub(super) fn json(&self) -> Json {
        let kind = match self {
            Self::Call { error: CallError::Remote(error), .. } => return json!(error),
            Self::Start(EngineError::Start { source: StartError::Failed { error, .. }, .. }) => {
                return json!(error);
            }
            Self::Call { error: CallError::WorkerDied { .. }, .. } => "worker_died",
            _ if self.status() == TIMED_OUT => "timeout",
            Self::Call { .. } => "call",
            Self::Start(_) | Self::StartTimeout { .. } | Self::LateWorker { .. } => "start",
            Self::Form { .. } | Self::Print(_) => "output",
        };
        let text = self.text();
        json!({ "kind": kind, "message": text.strip_prefix("snakepit: ").unwrap_or(&text).trim_end() })
    }
}

/// The last line of stderr under `--json`.
pub(super) fn json(status: u8, error: &Json) -> String {
    say::json(&json!({ "status": status, "error": error }))
}

/// Whether a start failed for a reason that is not in the worker's code.
fn is_ours(error: &StartError) -> bool {
    matches!(
        error,
        StartError::Spawn(_)
            | StartError::Missing(_)
            | StartError::Environment(_)
            | StartError::System { .. }
    )
}

/// An error of a worker with its notes, its traceback and its causes.
fn remote(error: &RemoteError) -> String {
    let mut text = String::new();
    for (depth, error) in error.chain().enumerate() {
        let caused = if depth > 0 { "caused by " } else { "" };
        let _ = writeln!(text, "{caused}{error}");
        for note in &error.notes {
            let _ = writeln!(text, "  note: {note}");
        }
        if let Some(traceback) = &error.traceback {
            let _ = writeln!(text, "{}", traceback.trim_end());
        }
    }
    text
}

fn hint(error: &RemoteError, commands: &[String]) -> String {
    match error.kind.as_str() {
        "unknown_command" if !commands.is_empty() => format!("  its commands are {}\n", commands.join(", ")),
        "streaming" => "  add --stream to print its values as they come\n".into(),
        "bad_argument" => {
            "  arguments are written as key=text or key:=json; numbers need the colon: n:=3\n".into()
        }
        _ => String::new(),
    }
}
