//! `snakepit env`: manages the Python environments in the cache.
//!
//! Owns the command line. [`list`] shows environments, [`build`] builds them before their pools need them, [`prune`]
//! removes them, and [`progress`] shows the progress of a build.

mod build;
mod list;
pub(crate) mod progress;
mod prune;

use std::path::PathBuf;

use snakepit::environment::Cache;

use crate::shared::failure::CliFailure;
use crate::shared::options::JsonOption;

/// List, build and remove the Python environments of workers.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct EnvArgs {
    #[command(subcommand)]
    command: EnvCommand,
}

const HELP: &str = "\
A pool that names `requirements` or a `project` makes its environment when it starts, once for each content. Environments
are kept in --cache-dir, else $SNAKEPIT_CACHE_DIR/envs, else $XDG_CACHE_HOME/snakepit/envs (~/.cache/snakepit/envs).";

#[derive(clap::Subcommand)]
enum EnvCommand {
    List(list::ListArgs),
    Build(Box<build::BuildArgs>),
    Prune(prune::PruneArgs),
}

pub(crate) fn run(args: &EnvArgs) -> Result<u8, CliFailure> {
    match &args.command {
        EnvCommand::List(args) => list::run(args),
        EnvCommand::Build(args) => build::run(args),
        EnvCommand::Prune(args) => prune::run(args),
    }
}

/// The directory of the environments and the format of the report.
#[derive(clap::Args)]
struct CacheOptions {
    /// Keep environments in this directory.
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    #[command(flatten)]
    output: JsonOption,
}

impl CacheOptions {
    fn cache(&self) -> Result<Cache, CliFailure> {
        match &self.cache_dir {
            Some(dir) => Ok(Cache::at(std::path::absolute(dir).unwrap_or_else(|_| dir.clone()))),
            None => Cache::default_dir().map(Cache::at).map_err(|error| CliFailure::of(&error)),
        }
    }
}

/// Formats a number of bytes for people.
#[expect(clippy::cast_precision_loss, reason = "a digit after the point is shown")]
fn size(bytes: u64) -> String {
    let mut number = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if number < 1024.0 {
            return if unit == "B" { format!("{bytes} B") } else { format!("{number:.1} {unit}") };
        }
        number /= 1024.0;
    }
    format!("{number:.1} TiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shown_with_their_unit() {
        let shown = [0, 1023, 1536, 5 << 20, 3 << 30, 2 << 40].map(size);
        assert_eq!(shown, ["0 B", "1023 B", "1.5 KiB", "5.0 MiB", "3.0 GiB", "2.0 TiB"]);
    }
}
