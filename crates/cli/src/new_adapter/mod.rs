//! `snakepit new-adapter`: writes a crate with an adapter, a worker for it, and tests that pass unchanged.

mod crate_name;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::shared::exit_status::SUCCESS;
use crate::shared::failure::CliFailure;
use crate::shared::output;
use crate_name::CrateName;

/// Write a crate with an adapter of your own, a worker for it, and tests that pass unchanged.
#[derive(clap::Args)]
#[command(
    after_help = "The crate is written to a directory of its name. It depends on the library snakepit: without \
                  --snakepit, on the version of this program, which must then be in a registry that cargo knows.\n\n\
                  Exit status: 0 when the crate was written, 2 when the name is invalid, the directory existed before \
                  or --snakepit does not name the library, 125 when it cannot be written."
)]
pub(crate) struct NewAdapterArgs {
    /// The crate's name, such as my-lines.
    #[arg(value_name = "NAME")]
    name: String,
    /// Create the crate's directory in this one.
    #[arg(long, value_name = "DIR", default_value = ".")]
    into: PathBuf,
    /// Depend on the library at this path: a checkout of snakepit, or its crates/snakepit.
    #[arg(long, value_name = "PATH")]
    snakepit: Option<PathBuf>,
}

const FILES: [(&str, &str); 5] = [
    ("Cargo.toml", include_str!("template/Cargo.toml.txt")),
    ("README.md", include_str!("template/README.md.txt")),
    ("src/lib.rs", include_str!("template/lib.rs.txt")),
    ("tests/conformance.rs", include_str!("template/conformance.rs.txt")),
    ("worker.py", include_str!("template/worker.py")),
];

pub(crate) fn run(args: &NewAdapterArgs) -> Result<u8, CliFailure> {
    let name: CrateName = args.name.parse().map_err(|reason| {
        CliFailure::usage(format!("{:?} cannot be the name of a crate: {reason}", args.name))
            .hint("choose one such as my-lines")
    })?;
    let dir = args.into.join(name.as_str());
    if dir.symlink_metadata().is_ok() {
        return Err(is_there(&dir));
    }
    let library = LibrarySource::find(args.snakepit.as_deref())?;
    write(&args.into, &dir, |text| name.fill(&library.fill(text)))?;
    let shown = dir.display();
    let advice = library.advice();
    output::out(&format!(
        "Wrote {shown}: an adapter, a worker for it and tests. {advice}Try:\n\n  cd {shown}\n  cargo test\n"
    ));
    Ok(SUCCESS)
}

/// Writes all files to a temporary directory and moves it into place. An incomplete crate never exists.
fn write(into: &Path, dir: &Path, fill: impl Fn(&str) -> String) -> Result<(), CliFailure> {
    let cannot = |error: std::io::Error| {
        CliFailure::new(format!("cannot write {}", dir.display()), &error)
            .hint("nothing was written: name a directory that you may write to with --into")
    };
    fs::create_dir_all(into).map_err(cannot)?;
    // The directory is removed when `draft` is dropped.
    let draft = tempfile::Builder::new().prefix(".new-adapter-").tempdir_in(into).map_err(cannot)?;
    for (path, text) in FILES {
        let path = draft.path().join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(cannot)?;
        }
        fs::write(&path, fill(text)).map_err(cannot)?;
    }
    fs::set_permissions(draft.path(), fs::Permissions::from_mode(0o755)).map_err(cannot)?;
    match renameat_with(CWD, draft.path(), CWD, dir, RenameFlags::NOREPLACE) {
        Ok(()) => {
            let _ = draft.keep();
            Ok(())
        }
        Err(rustix::io::Errno::EXIST) => Err(is_there(dir)),
        Err(error) => Err(cannot(error.into())),
    }
}

fn is_there(dir: &Path) -> CliFailure {
    CliFailure::usage(format!("{} already exists", dir.display()))
        .hint("nothing was written: choose another name, or another directory with --into")
}

/// Where the crate finds the library snakepit.
enum LibrarySource {
    /// In a registry, in the version of this program.
    Version,
    Path(PathBuf),
}

impl LibrarySource {
    fn find(path: Option<&Path>) -> Result<Self, CliFailure> {
        let Some(path) = path else { return Ok(Self::Version) };
        let places = [path.to_owned(), path.join("crates/snakepit")];
        let found = places.into_iter().find(|place| is_library(place));
        let found = found.and_then(|place| place.canonicalize().ok());
        found.map(Self::Path).ok_or_else(|| {
            CliFailure::usage(format!("{} is not the library snakepit", path.display()))
                .hint("nothing was written: name a checkout of snakepit, or its crates/snakepit")
        })
    }

    fn fill(&self, text: &str) -> String {
        let version = env!("CARGO_PKG_VERSION");
        let (dependency, place) = match self {
            Self::Version => (
                format!("version = \"{version}\""),
                format!(
                    "It needs the library `snakepit` {version} in a registry that cargo knows; with a checkout, write \
                     `path = \"…/crates/snakepit\"` in the place of the version."
                ),
            ),
            // TOML and JSON escape quotes and backslashes alike.
            Self::Path(path) => {
                let quoted = serde_json::Value::from(path.to_string_lossy()).to_string();
                (format!("path = {quoted}"), "The library `snakepit` is found by its path.".into())
            }
        };
        text.replace("@snakepit@", &dependency).replace("@where@", &place)
    }

    /// Returns what to know before the first build.
    fn advice(&self) -> String {
        match self {
            Self::Version => format!(
                "It needs snakepit {} from a registry: if cargo does not find it, write the crate again with --snakepit PATH. ",
                env!("CARGO_PKG_VERSION")
            ),
            Self::Path(_) => String::new(),
        }
    }
}

fn is_library(place: &Path) -> bool {
    let manifest = fs::read_to_string(place.join("Cargo.toml")).unwrap_or_default();
    manifest.lines().any(|line| line.trim() == "name = \"snakepit\"")
}
