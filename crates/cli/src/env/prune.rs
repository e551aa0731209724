//! `snakepit env prune`: removes environments that no host uses.

use std::time::Duration;

use serde::Serialize;

use super::{CacheOptions, size};
use crate::shared::duration;
use crate::shared::exit_status::SUCCESS;
use crate::shared::failure::CliFailure;

/// Remove the environments that no host uses, and the remains of failed builds.
#[derive(clap::Args)]
pub(super) struct PruneArgs {
    #[command(flatten)]
    place: CacheOptions,
    /// Keep environments that were used within this time. Write 30 days as 720h.
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "0s")]
    unused_for: Duration,
}

#[derive(Serialize)]
struct PruneReport {
    removed: Vec<String>,
    bytes: u64,
}

pub(super) fn run(args: &PruneArgs) -> Result<u8, CliFailure> {
    let pruned = args.place.cache()?.prune(args.unused_for).map_err(|error| CliFailure::of(&error))?;
    let bytes = pruned.iter().map(|it| it.bytes).sum();
    let report = PruneReport { removed: pruned.into_iter().map(|it| it.key).collect(), bytes };
    args.place.output.print(&report, || match report.removed.len() {
        0 => "Nothing to remove.\n".to_owned(),
        1 => format!("Removed 1 environment ({}).\n", size(bytes)),
        n => format!("Removed {n} environments ({}).\n", size(bytes)),
    });
    Ok(SUCCESS)
}
