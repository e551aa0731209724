//! `snakepit env list`: lists the environments in the cache, their state, and their contents.

use serde::Serialize;
use snakepit::environment::{CachedEnvironment, EnvironmentDetails};

use super::{CacheOptions, size};
use crate::shared::exit_status::SUCCESS;
use crate::shared::failure::CliFailure;
use crate::shared::options::shown;
use crate::shared::output::report;
use crate::shared::output::table::{self, dash};

/// The number of characters of the requirements that fit in a row.
const SHOWN: usize = 60;

/// List the environments, most recently used first.
#[derive(clap::Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    place: CacheOptions,
}

#[derive(Serialize)]
struct EnvironmentList {
    cache_dir: String,
    environments: Vec<EnvironmentRecord>,
}

report! {
    struct EnvironmentRecord from entry: &CachedEnvironment {
        key: String = entry.key.clone(),
        state: &'static str = entry.state.as_str(),
        path: Option<String> = entry.kept.as_ref().map(|kept| shown(&kept.path)),
        python: Option<String> = entry.kept.as_ref().map(|kept| kept.python.clone()),
        tool: Option<String> = entry.kept.as_ref().map(|kept| kept.tool.clone()),
        made_at: Option<String> = entry.kept.as_ref().and_then(|kept| table::rfc3339(kept.made)),
        used_at: Option<String> = entry.kept.as_ref().and_then(|kept| table::rfc3339(kept.used)),
        bytes: u64 = entry.bytes,
        recipe: Option<String> = entry.kept.as_ref().map(|kept| kept.recipe.clone()),
    }
}

pub(super) fn run(args: &ListArgs) -> Result<u8, CliFailure> {
    let cache = args.place.cache()?;
    let entries = cache.list().map_err(|error| CliFailure::of(&error))?;
    let report = EnvironmentList {
        cache_dir: shown(cache.dir()),
        environments: entries.iter().map(EnvironmentRecord::from).collect(),
    };
    args.place.output.print(&report, || {
        if entries.is_empty() {
            return format!("There are no environments in {}.\n", report.cache_dir);
        }
        let rows: Vec<_> = entries.iter().map(row).collect();
        table::aligned(["KEY", "STATE", "PYTHON", "MADE BY", "LAST USED", "SIZE", "FOR"], &rows)
    });
    Ok(SUCCESS)
}

fn row(entry: &CachedEnvironment) -> [String; 7] {
    let of = |fact: fn(&EnvironmentDetails) -> String| entry.kept.as_ref().map_or_else(dash, fact);
    [
        entry.key.clone(),
        entry.state.as_str().to_owned(),
        of(|kept| kept.python.clone()),
        of(|kept| kept.tool.clone()),
        of(|kept| table::local_time(kept.used)),
        size(entry.bytes),
        of(|kept| requirements(&kept.recipe)),
    ]
}

/// Returns the requirements, or the files that list them, on one line.
fn requirements(recipe: &str) -> String {
    const HEADS: [&str; 5] = ["python ", "dir ", "arg ", "local ", "stamp "];
    let lines = recipe.lines().map(str::trim).filter(|line| !HEADS.iter().any(|head| line.starts_with(head)));
    let (mut files, mut packages) = (Vec::new(), Vec::new());
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut words = line.split(' ');
        match (words.next(), words.next().map(str::parse::<usize>), words.next()) {
            (Some(kind @ ("pyproject" | "uv.lock" | "pylock")), Some(Ok(_)), None) => files.push(kind),
            (Some("requirements" | "included"), Some(Ok(_)) | None, None) => {}
            _ => packages.push(line),
        }
    }
    let text = if files.is_empty() { packages.join(", ") } else { files.join(", ") };
    let mut line: String = text.chars().filter(|c| !c.is_control()).take(SHOWN).collect();
    if line.len() < text.len() {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_requirements_of_an_environment_fit_a_line() {
        assert_eq!(requirements("python cpython 3\narg --pre\nrequirements\na>=1\nb\n"), "a>=1, b");
        assert_eq!(requirements("python cpython 3\nrequirements 9\na\n# no\n\nb\n"), "a, b");
        assert_eq!(requirements("python cpython 3\nuv.lock 3\nabc\npyproject 2\nxy\n"), "uv.lock, pyproject");
        assert_eq!(requirements(&format!("requirements\n{}\n", "x".repeat(99))).chars().count(), SHOWN + 1);
    }
}
