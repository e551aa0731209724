//! Shows what the loops do: a table that a terminal redraws, and lines for everything else.

use std::sync::Arc;

use serde_json::json;
use snakepit::loops::{EndOrder, Intake, PoolLoop, Runnable};
use snakepit::mailbox::MessageCounts;

use crate::shared::output;
use crate::shared::output::table::aligned;

/// The format of lines.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LineFormat {
    Text,
    Json,
}

/// A loop and the status that was printed last.
pub(super) struct LoopRow {
    pub(super) of: Arc<PoolLoop>,
    /// The mailbox, as the configuration names it.
    pub(super) mailbox: String,
    printed: Option<LoopStatus>,
}

#[derive(Clone, PartialEq, Eq)]
struct LoopStatus {
    state: String,
    handled: u64,
    failed: u64,
    in_flight: usize,
    /// `None` if the mailbox does not answer.
    count: Option<MessageCounts>,
}

impl LoopRow {
    pub(super) fn new(of: Arc<PoolLoop>, mailbox: String) -> Self {
        Self { of, mailbox, printed: None }
    }

    async fn status(&self) -> LoopStatus {
        let control = self.of.control();
        let orders = control.wanted();
        let state = match (control.running(), orders.end, control.trouble()) {
            (false, _, _) if control.has_begun() => "ended".to_owned(),
            (false, _, _) => "starts".to_owned(),
            (true, EndOrder::Finish | EndOrder::Cut, _) => "drains".to_owned(),
            (true, EndOrder::Not, Some(trouble)) => trouble,
            (true, EndOrder::Not, None) if orders.intake == Intake::Paused => "paused".to_owned(),
            (true, EndOrder::Not, None) => "runs".to_owned(),
        };
        LoopStatus {
            state,
            handled: control.handled(),
            failed: control.failed(),
            in_flight: control.in_flight(),
            count: self.of.mailbox().count().await.ok(),
        }
    }

    fn calls(&self) -> String {
        format!("{}.{}", self.of.pool(), self.of.command())
    }
}

impl LoopStatus {
    /// Returns the number of messages that wait in the mailbox, and of its dead letters.
    fn waiting_and_dead(&self) -> (Option<u64>, Option<u64>) {
        (self.count.map(|count| count.visible + count.delayed), self.count.map(|count| count.dead))
    }
}

/// Returns the lines of the table.
pub(super) async fn lines(rows: &[LoopRow]) -> Vec<String> {
    let mut cells = Vec::new();
    for row in rows {
        let status = row.status().await;
        let (waiting, dead) = status.waiting_and_dead();
        let number = |number: Option<u64>| number.map_or_else(|| "?".to_owned(), |number| number.to_string());
        cells.push([
            row.of.name().to_owned(),
            row.mailbox.clone(),
            row.calls(),
            status.handled.to_string(),
            status.failed.to_string(),
            status.in_flight.to_string(),
            number(waiting),
            number(dead),
            status.state,
        ]);
    }
    let header = ["LOOP", "MAILBOX", "CALLS", "HANDLED", "FAILED", "IN FLIGHT", "WAITING", "DEAD", "STATE"];
    aligned(header, &cells).lines().map(str::to_owned).collect()
}

/// Prints a line for each loop whose status has changed.
pub(super) async fn print_changes(rows: &mut [LoopRow], form: LineFormat) {
    for row in rows {
        let status = row.status().await;
        if row.printed.as_ref() != Some(&status) {
            output::out(&line(row, &status, form));
            row.printed = Some(status);
        }
    }
}

fn line(row: &LoopRow, status: &LoopStatus, form: LineFormat) -> String {
    let (name, calls) = (row.of.name(), row.calls());
    let LoopStatus { state, handled, failed, in_flight, .. } = status;
    let (waiting, dead) = status.waiting_and_dead();
    match form {
        LineFormat::Json => output::json(&json!({
            "loop": name, "mailbox": row.mailbox, "pool": row.of.pool(), "command": row.of.command(), "state": state,
            "handled": handled, "failed": failed, "in_flight": in_flight, "waiting": waiting, "dead": dead,
        })),
        LineFormat::Text => {
            let in_mailbox = match (waiting, dead) {
                (Some(waiting), Some(dead)) => format!(", {waiting} waiting, {dead} dead"),
                _ => String::new(),
            };
            let mailbox = &row.mailbox;
            format!(
                "{name}: {mailbox} → {calls}: {state}, {handled} handled, {failed} failed, {in_flight} in flight{in_mailbox}\n"
            )
        }
    }
}
