//! What every backend of mailboxes must pass: one suite of named checks, and one checker of what concurrent clients saw.
//!
//! Knows backends only through [`Fixture`]: whoever adds one writes that, and runs
//! [`mailbox_conformance!`](crate::mailbox_conformance), [`load`] and [`model`] with it.

pub mod checker;
pub mod conformance;
pub mod cut;
pub mod fixture;
pub mod history;
pub mod jump;
pub mod load;
pub mod model;
pub mod notes;
pub mod telling;

pub use checker::{Report, Rule, Terms, check};
pub use conformance::{CHECKS, Check, Verdict};
pub use fixture::Fixture;
pub use history::{Ending, History};
pub use jump::JumpClock;
pub use notes::Notes;
pub use telling::Telling;
