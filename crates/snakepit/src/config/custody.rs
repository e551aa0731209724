//! The keys of `[custody]`.
//!
//! Custody does not depend on serde, so its keys are listed here. The compiler checks them against its fields.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::foreign::Foreign;
use crate::custody;
use snakepit_settings::{HumanTime, settings};

settings! {
    keys of Foreign<custody::CustodyOptions> {
        /// The kind of containment that holds the workers: `"auto"`, `"namespace"`, `"shim"` or `"group"`.
        /// `snakepit doctor` shows which ones work on this machine.
        containment: custody::Containment as ContainmentChoice,
        /// The directory in which runs are recorded. Unset: `$SNAKEPIT_STATE_DIR`, otherwise /var/lib/snakepit for root
        /// and the XDG state directory for other users. Example: `state_dir = "state"`.
        state_dir: Option<std::path::PathBuf>,
        /// Whether a stop asks workers to end, once calls are drained, before it kills them. Otherwise it kills them at
        /// once. This also applies to the end of a script, a signal, a drop and `cleanup()`.
        cleanup_on_stop: bool,
        /// The time that all workers together have from the goodbye to KILL, in milliseconds. TERM comes at half-time,
        /// or at once to a worker that has no goodbye or whose call was cut short.
        cleanup_on_stop_timeout_ms: u64,
        /// Whether TERM is sent to a worker's whole process group, or only to its main process. KILL always reaches all
        /// processes.
        process_group_kill: bool,
        /// How many rounds of KILL and scan take place before survivors are reported.
        cleanup_max_retries: u32,
        /// The duration of one such round, in milliseconds.
        cleanup_retry_interval_ms: u64,
        /// The interval at which processes are checked for death where the system has no pidfd, in milliseconds.
        cleanup_poll_interval_ms: u64,
        /// Whether each record is synced to the disk: `"off"`, or `"data"` for file systems that lose writes although
        /// the machine stays up.
        ledger_sync: custody::LedgerSync as SyncChoice,
        /// The interval of the search for dead runs of other hosts. `"0s"` turns it off.
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

settings!(notation ContainmentChoice of custody::Containment);

#[derive(Deserialize, Serialize)]
struct SyncChoice(#[serde(with = "SyncName")] custody::LedgerSync);

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "snake_case", remote = "custody::LedgerSync")]
enum SyncName {
    Off,
    Data,
}

settings!(notation SyncChoice of custody::LedgerSync);
