//! Loops over mailboxes in memory and in SQLite, and over pools of Python workers.

mod backlog;
mod crashes;
mod failures;
mod flaky;
mod group;
mod handling;
mod health;
mod long_handlers;
mod mailboxes;
mod outages;
mod peer_faults;
mod process;
mod python;
mod recovery;
mod replies;
mod specification;
#[path = "../support/mod.rs"]
mod support;
mod worker_shortage;
