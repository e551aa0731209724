//! Faults for mailboxes that outlive their process: power cuts, killed processes and clocks that jump.
//!
//! A killed process leaves a trace of its operations. [`OperationTrace`] turns the trace into a history, which the
//! [checker](snakepit::mailbox_conformance::checker) judges.

pub mod power_cut;
pub mod settable_clock;
pub mod trace;
pub mod traced_mailbox;

pub use settable_clock::SettableClock;
pub use trace::OperationTrace;
pub use traced_mailbox::TracedMailbox;
