//! `snakepit env list`: what is there, who uses it, and what for.

use serde::Serialize;
use snakepit::environment::{Entry, Kept};

use super::{Place, cannot, size};
use crate::say::{self, Failure};
use crate::table;

/// How much of what was asked for fits a row.
const SHOWN: usize = 60;

/// List the environments, the last used first.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    place: Place,
}

#[derive(Serialize)]
struct Listing {
    cache_dir: String,
    environments: Vec<Record>,
}

#[derive(Serialize)]
struct Record {
    key: String,
    state: &'static str,
    path: Option<String>,
    python: Option<String>,
    tool: Option<String>,
    made_at: Option<String>,
    used_at: Option<String>,
    bytes: u64,
    recipe: Option<String>,
}

pub(super) fn run(args: &Args) -> Result<u8, Failure> {
    let cache = args.place.cache()?;
    let entries = cache.list().map_err(|error| cannot(&error))?;
    let dir = cache.dir().display().to_string();
    say::out(&if args.place.json {
        say::json(&Listing { cache_dir: dir, environments: entries.into_iter().map(record).collect() })
    } else if entries.is_empty() {
        format!("There are no environments in {dir}.\n")
    } else {
        let rows: Vec<_> = entries.iter().map(row).collect();
        table::aligned(["KEY", "STATE", "PYTHON", "MADE BY", "LAST USED", "SIZE", "FOR"], &rows)
    });
    Ok(0)
}

fn row(entry: &Entry) -> [String; 7] {
    let of = |fact: fn(&Kept) -> String| entry.kept.as_ref().map_or_else(|| "-".to_owned(), fact);
    [
        entry.key.clone(),
        entry.state.as_str().to_owned(),
        of(|kept| kept.python.clone()),
        of(|kept| kept.tool.clone()),
        of(|kept| table::local_time(kept.used)),
        size(entry.bytes),
        of(|kept| asked_for(&kept.recipe)),
    ]
}

/// The requirements, or what stands in their place, on one line.
fn asked_for(recipe: &str) -> String {
    const HEADS: [&str; 5] = ["python ", "dir ", "arg ", "local ", "stamp "];
    let lines = recipe.lines().map(str::trim).filter(|line| !HEADS.iter().any(|head| line.starts_with(head)));
    let (mut files, mut asked) = (Vec::new(), Vec::new());
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut words = line.split(' ');
        match (words.next(), words.next().map(str::parse::<usize>), words.next()) {
            (Some(kind @ ("pyproject" | "uv.lock" | "pylock")), Some(Ok(_)), None) => files.push(kind),
            (Some("requirements" | "included"), Some(Ok(_)) | None, None) => {}
            _ => asked.push(line),
        }
    }
    let text = if files.is_empty() { asked.join(", ") } else { files.join(", ") };
    // A terminal must not obey what a file says.
    let mut shown: String = text.chars().filter(|c| !c.is_control()).take(SHOWN).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

fn record(Entry { key, state, kept, bytes, .. }: Entry) -> Record {
    let state = state.as_str();
    match kept {
        None => Record {
            key,
            state,
            bytes,
            path: None,
            python: None,
            tool: None,
            made_at: None,
            used_at: None,
            recipe: None,
        },
        Some(kept) => Record {
            key,
            state,
            bytes,
            path: Some(kept.path.display().to_string()),
            python: Some(kept.python),
            tool: Some(kept.tool),
            made_at: table::rfc3339(kept.made),
            used_at: table::rfc3339(kept.used),
            recipe: Some(kept.recipe),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_environment_is_for_fits_a_line() {
        assert_eq!(asked_for("python cpython 3\narg --pre\nrequirements\na>=1\nb\n"), "a>=1, b");
        assert_eq!(asked_for("python cpython 3\nrequirements 9\na\n# no\n\nb\n"), "a, b");
        assert_eq!(asked_for("python cpython 3\nuv.lock 3\nabc\npyproject 2\nxy\n"), "uv.lock, pyproject");
        assert_eq!(asked_for(&format!("requirements\n{}\n", "x".repeat(99))).chars().count(), SHOWN + 1);
    }
}
