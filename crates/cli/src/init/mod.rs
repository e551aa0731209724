//! `snakepit init`: writes a worker and a configuration that run as they are.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use snakepit::Config;

use crate::call::HOME;
use crate::say::{self, Failure, USAGE};

/// Write a worker and a configuration that run as they are. No file is overwritten.
#[derive(clap::Args)]
#[command(
    after_help = "Exit status: 0 when the files are there, 2 when one of them was there before, 125 when they \
                        cannot be written."
)]
pub(crate) struct Args {
    /// The directory; it is made if it is not there.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

const WORKER: &str = include_str!("worker.py");
const README: &str = include_str!("README.md");

pub(crate) fn run(args: &Args) -> Result<u8, Failure> {
    let files = [("worker.py", WORKER.to_owned()), (HOME, configuration()), ("README.md", README.to_owned())];
    let dir = &args.dir;
    // All or nothing: half a project helps nobody.
    for (name, _) in &files {
        let path = dir.join(name);
        if path.symlink_metadata().is_ok() {
            return Err(Failure::plain(format!("{} is there already", path.display()))
                .status(USAGE)
                .hint("nothing was written: name a directory without it, or move it away"));
        }
    }
    fs::create_dir_all(dir).map_err(|error| cannot_write(dir, &error))?;
    for (name, text) in &files {
        let path = dir.join(name);
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|error| cannot_write(&path, &error))?;
    }
    let names = files.map(|(name, _)| name).join(", ");
    let shown = dir.display();
    let mut text = format!("Wrote {names} in {shown}. Try:\n\n");
    if dir != Path::new(".") {
        let _ = writeln!(text, "  cd {shown}");
    }
    text.push_str("  snakepit call add a:=1 b:=2\n  snakepit call --stream count to:=3\n");
    say::out(&text);
    Ok(0)
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::plain(format!("cannot write {}: {error}", path.display()))
        .hint("name a directory that you may write to")
}

/// What runs, and below it every other key as a comment, from the library's own reference.
fn configuration() -> String {
    let mut text = String::from(
        "# The pools of this project. `snakepit call` finds this file where it is started.\n\
         # Below each thing that is set, every other key stands with its default.\n\n",
    );
    for line in Config::REFERENCE.lines().skip_while(|line| !line.starts_with("# One table")) {
        match line {
            "[pool.example]" => text.push_str("[pool.worker]\n"),
            "worker = \"worker.py\"" => text.push_str("worker = \"worker.py\"\n"),
            line if line.starts_with(['[', '#']) || line.is_empty() => {
                let _ = writeln!(text, "{line}");
            }
            line => {
                let _ = writeln!(text, "#{line}");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_sets_the_worker_only_and_shows_every_key() {
        let text = configuration();
        let config = Config::parse(&text, "/conf/snakepit.toml").expect("it is valid");
        assert_eq!(config.names().collect::<Vec<_>>(), ["worker"]);
        let set: Vec<&str> =
            text.lines().filter(|line| !line.is_empty() && !line.starts_with(['#', '['])).collect();
        assert_eq!(set, ["worker = \"worker.py\""]);
        assert!(text.contains("#call_timeout = ") && text.contains("#reap_interval = "), "{text}");
    }
}
