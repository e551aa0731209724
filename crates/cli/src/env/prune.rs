//! `snakepit env prune`: removes what nobody uses.

use std::time::Duration;

use serde::Serialize;

use super::{Place, cannot, size};
use crate::duration;
use crate::say::{self, Failure};

/// Remove the environments that no host holds, and what attempts have left.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    place: Place,
    /// Keep those that were asked for within this time: 30d is written as 720h.
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "0s")]
    unused_for: Duration,
}

#[derive(Serialize)]
struct Report {
    removed: Vec<String>,
    bytes: u64,
}

pub(super) fn run(args: &Args) -> Result<u8, Failure> {
    let pruned = args.place.cache()?.prune(args.unused_for).map_err(|error| cannot(&error))?;
    let bytes = pruned.iter().map(|it| it.bytes).sum();
    say::out(&if args.place.json {
        say::json(&Report { removed: pruned.into_iter().map(|it| it.key).collect(), bytes })
    } else {
        match pruned.len() {
            0 => "Nothing to remove.\n".to_owned(),
            1 => format!("Removed 1 environment ({}).\n", size(bytes)),
            n => format!("Removed {n} environments ({}).\n", size(bytes)),
        }
    });
    Ok(0)
}
