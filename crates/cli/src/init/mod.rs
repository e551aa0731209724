//! `snakepit init`: writes a worker and a configuration that run unchanged.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use snakepit::Config;

use crate::shared::exit_status::SUCCESS;
use crate::shared::failure::CliFailure;
use crate::shared::output;
use crate::shared::target::DEFAULT_CONFIG;

/// Write a worker and a configuration that run unchanged. No file is overwritten.
#[derive(clap::Args)]
#[command(
    after_help = "Exit status: 0 when the files were written, 2 when one of them existed before, 125 when they \
                  cannot be written."
)]
pub(crate) struct InitArgs {
    /// The directory to write to; created if it does not exist.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

const WORKER: &str = include_str!("worker.py");
const README: &str = include_str!("README.md");

pub(crate) fn run(args: &InitArgs) -> Result<u8, CliFailure> {
    let files = [
        ("worker.py", WORKER.to_owned()),
        (DEFAULT_CONFIG, configuration()),
        ("README.md", README.to_owned()),
    ];
    let dir = &args.dir;
    // Either all files are written or none.
    for (name, _) in &files {
        let path = dir.join(name);
        if path.symlink_metadata().is_ok() {
            return Err(CliFailure::usage(format!("{} already exists", path.display()))
                .hint("nothing was written: name another directory, or move the file away"));
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
    output::out(&text);
    Ok(SUCCESS)
}

fn cannot_write(path: &Path, error: &std::io::Error) -> CliFailure {
    CliFailure::new(format!("cannot write {}", path.display()), error)
        .hint("name a directory that you may write to")
}

/// Returns a configuration that sets only the worker. It lists every other key of the library's reference as a comment.
fn configuration() -> String {
    let mut text = String::from(
        "# The pools of this project. `snakepit call` reads this file from the directory in which it runs.\n\
         # The comments list every other key with its default.\n\n",
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
