//! `snakepit sdk`: the Python SDK that the program carries, for Pythons that the engine does not start itself.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use snakepit::adapter::python::sdk;

use crate::say::{self, Failure};

/// Give the Python SDK to wrapper scripts, tests and editors.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Install it into a virtual environment, as the distribution snakepit-worker.
    Install {
        /// The directory of the environment. Without it, that of the active one.
        #[arg(long, value_name = "VENV")]
        into: Option<PathBuf>,
    },
    /// Print a directory that makes `import snakepit` work when it is in PYTHONPATH.
    Path {
        /// Where the engine keeps its files.
        #[arg(long, value_name = "DIR")]
        state_dir: Option<PathBuf>,
    },
}

/// What Python calls the distribution, and its files.
const DISTRIBUTION: &str = "snakepit-worker";
const METADATA_PREFIX: &str = "snakepit_worker-";
const METADATA_SUFFIX: &str = ".dist-info";
const PACKAGE: &str = "snakepit";
/// The oldest Python 3 that it runs with.
const OLDEST_MINOR: u32 = 9;

pub(crate) fn run(args: &Args) -> Result<u8, Failure> {
    match &args.verb {
        Verb::Install { into } => install(into.as_deref()),
        Verb::Path { state_dir } => path(state_dir.clone()),
    }
}

fn path(state_dir: Option<PathBuf>) -> Result<u8, Failure> {
    let state_dir = crate::Common { state_dir, json: false }.state_dir()?;
    // The engine makes and checks the directory in the same way.
    let path = sdk::path(&state_dir).map_err(|error| {
        Failure::new(format!("cannot put the SDK into {}", state_dir.display()), &error)
            .hint("--state-dir or SNAKEPIT_STATE_DIR name another place")
    })?;
    say::out(&format!("{}\n", path.display()));
    Ok(0)
}

fn install(into: Option<&Path>) -> Result<u8, Failure> {
    let active = || std::env::var_os("VIRTUAL_ENV").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let venv = into.map(Path::to_owned).or_else(active).ok_or_else(|| {
        Failure::plain("no virtual environment is active").hint(
            "name one: snakepit sdk install --into VENV (`python3 -m venv VENV` makes one), \
             or use PYTHONPATH=\"$(snakepit sdk path)\"",
        )
    })?;
    let site = site_of(&venv)?;
    let failed = |what: &str, error: &io::Error| {
        Failure::new(format!("cannot install the SDK into {}: {what}", venv.display()), error)
    };
    let package = site.join(PACKAGE);
    let ours = installed(&site).map_err(|error| failed("looking at what is there", &error))?;
    if ours.is_empty() && package.exists() {
        return Err(Failure::plain(format!("{} is another package of that name", package.display())).hint(
            format!("remove it first: {} -m pip uninstall {PACKAGE}", venv.join("bin/python").display()),
        ));
    }
    for old in ours {
        fs::remove_dir_all(&old).map_err(|error| failed("removing an older one", &error))?;
    }
    if package.exists() {
        fs::remove_dir_all(&package).map_err(|error| failed("removing an older one", &error))?;
    }
    write(&site, &package).map_err(|error| failed("writing its files", &error))?;
    say::out(&format!("{DISTRIBUTION} {} is installed in {}\n", version(), venv.display()));
    Ok(0)
}

fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Where an environment keeps its packages.
fn site_of(venv: &Path) -> Result<PathBuf, Failure> {
    let no_venv = |why: &str| {
        Failure::plain(format!("{} is no virtual environment: {why}", venv.display()))
            .hint("`python3 -m venv VENV` makes one")
    };
    if !venv.join("pyvenv.cfg").is_file() {
        return Err(no_venv("it has no pyvenv.cfg"));
    }
    let versions = fs::read_dir(venv.join("lib")).map_err(|_| no_venv("it has no directory lib"))?;
    for entry in versions.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let site = entry.path().join("site-packages");
        let Some(minor) = name.strip_prefix("python3.").filter(|_| site.is_dir()) else { continue };
        if minor.parse::<u32>().is_ok_and(|minor| minor < OLDEST_MINOR) {
            return Err(Failure::plain(format!("{} has Python 3.{minor}", venv.display()))
                .hint(format!("the SDK needs Python 3.{OLDEST_MINOR} or newer")));
        }
        return Ok(site);
    }
    Err(no_venv("it has no lib/python3.*/site-packages"))
}

/// What an earlier installation has left: directories of its metadata.
fn installed(site: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(site)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(METADATA_PREFIX) && name.ends_with(METADATA_SUFFIX) {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Writes the package, and what lets pip show and remove it.
fn write(site: &Path, package: &Path) -> io::Result<()> {
    let metadata = format!("{METADATA_PREFIX}{}{METADATA_SUFFIX}", version());
    let mut record = String::new();
    fs::create_dir(package)?;
    for (name, content) in sdk::files() {
        fs::write(package.join(name), content)?;
        let _ = writeln!(record, "{PACKAGE}/{name},,");
    }
    let about = [
        (
            "METADATA",
            format!(
                "Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: {}\nSummary: Workers for Snakepit\n\
                 Requires-Python: >=3.9\n",
                version()
            ),
        ),
        ("INSTALLER", "snakepit\n".to_owned()),
        (
            "WHEEL",
            "Wheel-Version: 1.0\nGenerator: snakepit\nRoot-Is-Purelib: true\nTag: py3-none-any\n".to_owned(),
        ),
        ("top_level.txt", format!("{PACKAGE}\n")),
    ];
    fs::create_dir(site.join(&metadata))?;
    for (name, content) in &about {
        fs::write(site.join(&metadata).join(name), content)?;
        let _ = writeln!(record, "{metadata}/{name},,");
    }
    let _ = writeln!(record, "{metadata}/RECORD,,");
    // Last: without it pip takes the rest for the remains of something.
    fs::write(site.join(&metadata).join("RECORD"), record)
}
