//! Loops over mailboxes in memory and in SQLite, and over pools of Python workers.

mod flaky;
mod group;
mod handle;
mod health;
mod mailboxes;
mod peer_faults;
mod process;
mod receive;
mod settle;
mod specification;
#[path = "../support/mod.rs"]
mod support;
