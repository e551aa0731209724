//! What others want of a loop.

use tokio::time::Instant;

/// Whether a loop takes new messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Intake {
    /// It takes them.
    #[default]
    Open,
    /// It finishes what it has, and waits.
    Paused,
}

/// Whether a loop is to end, and how.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EndOrder {
    /// It goes on.
    #[default]
    Not,
    /// Messages in flight complete, messages that were not started go back.
    Finish,
    /// Messages in flight are cancelled and go back, too.
    Cut,
}

/// What others want of a loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct LoopOrders {
    /// Whether it takes new messages.
    pub intake: Intake,
    /// Whether it is to end; never withdrawn.
    pub end: EndOrder,
    /// The deadline of the loop's end. Leases are not extended after it.
    pub deadline: Option<Instant>,
}

impl LoopOrders {
    /// Whether new messages are wanted.
    pub fn receives(&self) -> bool {
        self.end == EndOrder::Not && self.intake == Intake::Open
    }

    /// Whether the deadline of the loop's end has passed, or the loop was cut short.
    pub fn is_overdue(&self) -> bool {
        self.end == EndOrder::Cut || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}
