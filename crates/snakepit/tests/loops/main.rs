//! Loops over real mailboxes, in memory and in SQLite, and real pools of Python workers.

#[path = "../support/mod.rs"]
mod support;

mod backlog;
mod beats;
mod crashes;
mod failures;
mod flaky;
mod group;
mod handling;
mod health;
mod outages;
mod peers;
mod post;
mod process;
mod python;
mod recovery;
mod replies;
mod seed;
mod shortage;
