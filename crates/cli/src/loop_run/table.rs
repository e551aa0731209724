//! What the loops do: a table that a terminal shows anew, and lines for everybody else.

use std::sync::Arc;

use serde_json::json;
use snakepit::loops::{End, Intake, PoolLoop, Runnable};
use snakepit::mailbox::Count;

use crate::say;
use crate::table::aligned;

/// How lines are written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    Json,
}

/// A loop, and what was said of it last.
pub(super) struct Row {
    pub(super) of: Arc<PoolLoop>,
    /// As the configuration has it.
    pub(super) mailbox: String,
    said: Option<Standing>,
}

/// How it stands with a loop.
#[derive(Clone, PartialEq, Eq)]
struct Standing {
    state: String,
    handled: u64,
    failed: u64,
    in_flight: usize,
    /// None if the mailbox does not answer.
    count: Option<Count>,
}

impl Row {
    pub(super) fn new(of: Arc<PoolLoop>, mailbox: String) -> Self {
        Self { of, mailbox, said: None }
    }

    async fn standing(&self) -> Standing {
        let control = self.of.control();
        let orders = control.wanted();
        let state = match (control.running(), orders.end, control.trouble()) {
            (false, _, _) if control.has_begun() => "ended".to_owned(),
            (false, _, _) => "starts".to_owned(),
            (true, End::Finish | End::Cut, _) => "drains".to_owned(),
            (true, End::Not, Some(trouble)) => trouble,
            (true, End::Not, None) if orders.intake == Intake::Paused => "paused".to_owned(),
            (true, End::Not, None) => "runs".to_owned(),
        };
        Standing {
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

impl Standing {
    /// Those that wait in the mailbox, and those that were given up there.
    fn waiting_and_dead(&self) -> (Option<u64>, Option<u64>) {
        (self.count.map(|count| count.visible + count.delayed), self.count.map(|count| count.dead))
    }
}

/// The table as it is now.
pub(super) async fn lines(rows: &[Row]) -> Vec<String> {
    let mut cells = Vec::new();
    for row in rows {
        let standing = row.standing().await;
        let (waiting, dead) = standing.waiting_and_dead();
        let number = |number: Option<u64>| number.map_or_else(|| "?".to_owned(), |number| number.to_string());
        cells.push([
            row.of.name().to_owned(),
            row.mailbox.clone(),
            row.calls(),
            standing.handled.to_string(),
            standing.failed.to_string(),
            standing.in_flight.to_string(),
            number(waiting),
            number(dead),
            standing.state,
        ]);
    }
    let header = ["LOOP", "MAILBOX", "CALLS", "HANDLED", "FAILED", "IN FLIGHT", "WAITING", "DEAD", "STATE"];
    aligned(header, &cells).lines().map(str::to_owned).collect()
}

/// Prints a line for each loop of which there is something new.
pub(super) async fn print_news(rows: &mut [Row], form: Form) {
    for row in rows {
        let standing = row.standing().await;
        if row.said.as_ref() != Some(&standing) {
            say::out(&line(row, &standing, form));
            row.said = Some(standing);
        }
    }
}

fn line(row: &Row, standing: &Standing, form: Form) -> String {
    let (name, calls) = (row.of.name(), row.calls());
    let Standing { state, handled, failed, in_flight, .. } = standing;
    let (waiting, dead) = standing.waiting_and_dead();
    match form {
        Form::Json => say::json(&json!({
            "loop": name, "mailbox": row.mailbox, "pool": row.of.pool(), "command": row.of.command(), "state": state,
            "handled": handled, "failed": failed, "in_flight": in_flight, "waiting": waiting, "dead": dead,
        })),
        Form::Text => {
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
