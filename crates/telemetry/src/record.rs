//! Converts events to counters, gauges and histograms of the recorder that the host has installed.

use std::sync::Arc;

use metrics::{counter, gauge, histogram};

use super::Event;
use super::measures::{
    CALL_SECONDS, CALLS, DEATHS, IN_FLIGHT, KILLED, MAP_INPUTS, QUEUE_SECONDS, QUEUED, RETRIES, SESSIONS,
    START_SECONDS, STARTS, STREAM_ITEMS, TOOL_SECONDS, TOOLS, WORKERS,
};

/// The gauges of a pool at one moment.
pub struct Standing<'a> {
    /// The pool.
    pub pool: &'a Arc<str>,
    /// The number of workers that serve.
    pub workers: usize,
    /// The number of calls that wait for a worker.
    pub queued: usize,
    /// The number of calls at workers.
    pub in_flight: usize,
    /// The number of open sessions.
    pub sessions: usize,
}

/// Sets the gauges of a pool.
#[expect(clippy::cast_precision_loss, reason = "no pool has 2^52 workers")]
pub fn stands(standing: &Standing<'_>) {
    let Standing { pool, workers, queued, in_flight, sessions } = standing;
    let counts = [(WORKERS, workers), (QUEUED, queued), (IN_FLIGHT, in_flight), (SESSIONS, sessions)];
    for (name, count) in counts {
        gauge!(name, "pool" => Arc::clone(pool)).set(*count as f64);
    }
}

pub(crate) fn record(event: &Event) {
    match event {
        Event::CallStop { pool, command, outcome, took, waited, .. } => {
            count_call(pool, command, outcome);
            histogram!(CALL_SECONDS, "pool" => Arc::clone(pool), "command" => Arc::clone(command))
                .record(*took);
            histogram!(QUEUE_SECONDS, "pool" => Arc::clone(pool)).record(*waited);
        }
        Event::CallRefused { pool, command, .. } => count_call(pool, command, "refused"),
        Event::QueueFull { pool, command, .. } => count_call(pool, command, "saturated"),
        Event::MapChunk { pool, command, inputs, failed, .. } => {
            for (outcome, count) in [("ok", inputs - failed), ("failed", *failed)] {
                let (pool, command) = (Arc::clone(pool), Arc::clone(command));
                counter!(MAP_INPUTS, "pool" => pool, "command" => command, "outcome" => outcome)
                    .increment(count as u64);
            }
        }
        Event::CallRetried { pool, command, .. } => {
            counter!(RETRIES, "pool" => Arc::clone(pool), "command" => Arc::clone(command)).increment(1);
        }
        Event::StreamEnded { pool, command, items, .. } => {
            let (pool, command) = (Arc::clone(pool), Arc::clone(command));
            counter!(STREAM_ITEMS, "pool" => pool, "command" => command).increment(*items);
        }
        Event::ToolStop { tool, outcome, took, .. } => {
            counter!(TOOLS, "tool" => Arc::clone(tool), "outcome" => *outcome).increment(1);
            histogram!(TOOL_SECONDS, "tool" => Arc::clone(tool)).record(*took);
        }
        Event::WorkerReady { pool, took, .. } => {
            counter!(STARTS, "pool" => Arc::clone(pool), "outcome" => "ok").increment(1);
            histogram!(START_SECONDS, "pool" => Arc::clone(pool)).record(*took);
        }
        Event::WorkerNotStarted { pool, .. } => {
            counter!(STARTS, "pool" => Arc::clone(pool), "outcome" => "failed").increment(1);
        }
        Event::WorkerDied { pool, .. } => counter!(DEATHS, "pool" => Arc::clone(pool)).increment(1),
        Event::CleanupSuccess { killed, .. } => counter!(KILLED).increment(*killed as u64),
        _ => {}
    }
}

fn count_call(pool: &Arc<str>, command: &Arc<str>, outcome: &'static str) {
    let (pool, command) = (Arc::clone(pool), Arc::clone(command));
    counter!(CALLS, "pool" => pool, "command" => command, "outcome" => outcome).increment(1);
}
