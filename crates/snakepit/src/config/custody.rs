//! The keys of `[custody]`.
//!
//! Custody itself has no serde and needs none, so its keys are listed here; the compiler checks them against its fields.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::foreign::Foreign;
use crate::custody;
use snakepit_settings::{HumanTime, Notation, settings};

settings! {
    keys of Foreign<custody::Config> {
        /// The tier that holds the workers: `"auto"`, `"namespace"`, `"shim"` or `"group"`; `snakepit doctor` says which ones work here.
        containment: custody::Containment as ContainmentChoice,
        /// Where runs are recorded. Unset: `$SNAKEPIT_STATE_DIR`, else /var/lib/snakepit for root, else the XDG state directory.
        /// Example: `state_dir = "state"`.
        state_dir: Option<std::path::PathBuf>,
        /// Whether a stop, once calls are drained, asks workers to end before it kills them. If not, it kills them at once. The same
        /// holds for a script's end, a signal, a drop and `cleanup()`.
        cleanup_on_stop: bool,
        /// The milliseconds that all workers have together, from the goodbye to KILL. TERM comes at half-time, or at once to a
        /// worker that has no goodbye or whose call was cut short.
        cleanup_on_stop_timeout_ms: u64,
        /// Whether TERM goes to a worker's whole group, or to its main process alone. KILL covers everything.
        process_group_kill: bool,
        /// How many rounds of KILL and scan there are before a survivor is reported.
        cleanup_max_retries: u32,
        /// The milliseconds that one such round takes.
        cleanup_retry_interval_ms: u64,
        /// How often death is looked for, in milliseconds, where the system has no pidfd.
        cleanup_poll_interval_ms: u64,
        /// Whether each record is synced to the disk: `"off"`, or `"data"` for file systems that lose writes of a live machine.
        ledger_sync: custody::LedgerSync as SyncChoice,
        /// How often dead runs of other hosts are looked for; `"0s"` is never.
        reap_interval: Duration as HumanTime,
    }
}

#[derive(Deserialize, Serialize)]
struct ContainmentChoice(#[serde(with = "TierName")] custody::Containment);

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "snake_case", remote = "custody::Containment")]
enum TierName {
    Auto,
    Namespace,
    Shim,
    Group,
}

impl Notation<custody::Containment> for ContainmentChoice {
    fn value(self) -> custody::Containment {
        self.0
    }

    fn written(value: &custody::Containment) -> Self {
        Self(*value)
    }
}

#[derive(Deserialize, Serialize)]
struct SyncChoice(#[serde(with = "SyncName")] custody::LedgerSync);

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "snake_case", remote = "custody::LedgerSync")]
enum SyncName {
    Off,
    Data,
}

impl Notation<custody::LedgerSync> for SyncChoice {
    fn value(self) -> custody::LedgerSync {
        self.0
    }

    fn written(value: &custody::LedgerSync) -> Self {
        Self(*value)
    }
}
