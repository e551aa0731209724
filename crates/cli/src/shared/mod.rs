//! What several commands share: options of the command line and what they name, the engine and its interrupts, and all
//! output. This module knows no command.

pub(crate) mod duration;
pub(crate) mod engine;
pub(crate) mod exit_status;
pub(crate) mod failure;
pub(crate) mod interrupts;
pub(crate) mod options;
pub(crate) mod output;
pub(crate) mod signals;
pub(crate) mod target;
pub(crate) mod worker_output;
