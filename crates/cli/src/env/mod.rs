//! `snakepit env`: the Python environments that workers run in, as they lie in the cache.
//!
//! Owns the command line. [`list`] shows them, [`build`] makes one ahead of its pool, [`prune`] removes them, and [`progress`]
//! shows how far one is that is being made.

mod build;
mod list;
pub(crate) mod progress;
mod prune;

use std::path::PathBuf;

use snakepit::environment::{Cache, EnvironmentError};

use crate::say::Failure;

/// List, build and remove the Python environments of workers.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

const HELP: &str = "\
Environments are made when a pool that names `requirements` or a `project` starts, once for each content, and kept in
--cache-dir, else $SNAKEPIT_CACHE_DIR/envs, else $XDG_CACHE_HOME/snakepit/envs (~/.cache/snakepit/envs).";

#[derive(clap::Subcommand)]
enum Verb {
    List(list::Args),
    Build(Box<build::Args>),
    Prune(prune::Args),
}

pub(crate) fn run(args: &Args) -> Result<u8, Failure> {
    match &args.verb {
        Verb::List(args) => list::run(args),
        Verb::Build(args) => build::run(args),
        Verb::Prune(args) => prune::run(args),
    }
}

/// Where the environments are, and how is printed what was found.
#[derive(clap::Args)]
struct Place {
    /// Where environments are kept.
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    /// Print one JSON object instead of text for people.
    #[arg(long)]
    json: bool,
}

impl Place {
    fn cache(&self) -> Result<Cache, Failure> {
        match &self.cache_dir {
            Some(dir) => Ok(Cache::at(std::path::absolute(dir).unwrap_or_else(|_| dir.clone()))),
            None => Cache::default_dir().map(Cache::at).map_err(|error| cannot(&error)),
        }
    }
}

fn cannot(error: &EnvironmentError) -> Failure {
    Failure::of(error)
}

/// Bytes, as a person reads them.
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
