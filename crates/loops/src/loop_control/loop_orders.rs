//! The orders that a loop must follow.

use tokio::time::Instant;

/// Whether a loop takes new messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Intake {
    /// The loop takes new messages.
    #[default]
    Open,
    /// The loop finishes the messages that it has, and waits.
    Paused,
}

/// Whether and how a loop must end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EndOrder {
    /// The loop continues.
    #[default]
    Not,
    /// Messages in flight complete, and messages that were not started go back.
    Finish,
    /// Messages in flight are cancelled and go back, too.
    Cut,
}

/// The orders that a loop must follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct LoopOrders {
    /// Whether the loop takes new messages.
    pub intake: Intake,
    /// Whether the loop must end. This order is never withdrawn.
    pub end: EndOrder,
    /// The deadline for the end of the loop. Leases are not extended after it.
    pub deadline: Option<Instant>,
}

impl LoopOrders {
    /// Reports whether the loop may receive new messages.
    pub fn receives(&self) -> bool {
        self.end == EndOrder::Not && self.intake == Intake::Open
    }

    /// Reports whether the deadline for the end has passed, or the loop was cut short.
    pub fn is_overdue(&self) -> bool {
        self.end == EndOrder::Cut || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}
