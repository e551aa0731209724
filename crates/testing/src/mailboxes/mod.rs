//! The tests of every mailbox backend: a suite of named checks, a checker of what concurrent clients saw, and a model.
//!
//! The suite knows a backend only through [`Fixture`]. To test your own backend, implement that trait and run the
//! checks, the model and a load with it:
//!
//! - `snakepit::mailbox_conformance_tests!(MyFixture)` defines a test for each of the [`CHECKS`].
//! - [`model::run`] plays random sequences of operations against the simplest possible mailbox.
//! - [`load::run`] lets many clients use a mailbox at once, well and badly. They record a [`History`], and [`check`]
//!   judges it by the rules [`Rule::Q1`] to [`Rule::Q12`].
//!
//! Owns the rules of mailboxes. Knows no backend.

pub mod checker;
pub mod conformance;
pub mod fixture;
pub mod history;
pub mod load;
pub mod model;
mod test_mailbox;

pub use checker::{CheckerReport, Rule, Terms, check};
pub use conformance::{CHECKS, CheckVerdict, MailboxCheck};
pub use fixture::Fixture;
pub use history::{FinalState, History};
