//! A run: one life of a host, from [`Run::open`] to [`Run::stop`].
//!
//! Owns the host's options ([`CustodyOptions`]), the state that a run's handles and threads share, its events, and the
//! list of open runs. It must not know how a command becomes a process, how to talk to a keeper, or how a dead run is judged:
//! it calls the folders `spawn`, `link`, `stop` and `reap`.
//!
//! In the order in which a run passes them: `startup` (before `main`) → `options` → `handle` → `shared_state` → `event` →
//! `open_runs` (the end of all runs at once).

pub(crate) mod event;
pub(crate) mod handle;
pub(crate) mod open_runs;
pub(crate) mod options;
pub(crate) mod shared_state;
pub mod startup;
