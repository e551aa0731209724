//! `snakepit sdk`: provides the Python SDK, which the program contains, to Pythons that the engine does not start.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use snakepit::adapter::python::sdk;

use crate::shared::exit_status::SUCCESS;
use crate::shared::failure::CliFailure;
use crate::shared::options::StateDirOption;
use crate::shared::output;

/// Provide the Python SDK to wrapper scripts, tests and editors.
#[derive(clap::Args)]
pub(crate) struct SdkArgs {
    #[command(subcommand)]
    command: SdkCommand,
}

#[derive(clap::Subcommand)]
enum SdkCommand {
    /// Install the SDK into a virtual environment, as the distribution snakepit-worker.
    Install {
        /// Install into this environment instead of the active one.
        #[arg(long, value_name = "VENV")]
        into: Option<PathBuf>,
    },
    /// Print a directory for PYTHONPATH in which `import snakepit` finds the SDK.
    Path {
        #[command(flatten)]
        state: StateDirOption,
    },
}

/// The names of the distribution and of its files.
const DISTRIBUTION: &str = "snakepit-worker";
const METADATA_PREFIX: &str = "snakepit_worker-";
const METADATA_SUFFIX: &str = ".dist-info";
const PACKAGE: &str = "snakepit";
/// The oldest Python 3 that the SDK supports.
const OLDEST_MINOR: u32 = 9;

pub(crate) fn run(args: &SdkArgs) -> Result<u8, CliFailure> {
    match &args.command {
        SdkCommand::Install { into } => install(into.as_deref()),
        SdkCommand::Path { state } => path(state),
    }
}

fn path(state: &StateDirOption) -> Result<u8, CliFailure> {
    let state_dir = state.resolve()?;
    // The engine creates and checks the directory in the same way.
    let path = sdk::path(&state_dir).map_err(|error| {
        CliFailure::new(format!("cannot put the SDK into {}", state_dir.display()), &error)
            .hint("choose another directory with --state-dir or SNAKEPIT_STATE_DIR")
    })?;
    output::out(&format!("{}\n", path.display()));
    Ok(SUCCESS)
}

fn install(into: Option<&Path>) -> Result<u8, CliFailure> {
    let active = || std::env::var_os("VIRTUAL_ENV").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let venv = into.map(Path::to_owned).or_else(active).ok_or_else(|| {
        CliFailure::internal("no virtual environment is active").hint(
            "name one: snakepit sdk install --into VENV (`python3 -m venv VENV` makes one), \
             or use PYTHONPATH=\"$(snakepit sdk path)\"",
        )
    })?;
    let site = site_of(&venv)?;
    let failed = |what: &str, error: &io::Error| {
        CliFailure::new(format!("cannot install the SDK into {}: {what}", venv.display()), error)
            .hint("name an environment that you may write to with --into")
    };
    let package = site.join(PACKAGE);
    let ours = installed(&site).map_err(|error| failed("looking for an older one", &error))?;
    if ours.is_empty() && package.exists() {
        return Err(CliFailure::internal(format!("{} is another package of that name", package.display()))
            .hint(format!(
                "remove it first: {} -m pip uninstall {PACKAGE}",
                venv.join("bin/python").display()
            )));
    }
    let old_package = package.exists().then(|| package.clone());
    for old in ours.into_iter().chain(old_package) {
        fs::remove_dir_all(&old).map_err(|error| failed("removing an older one", &error))?;
    }
    write(&site, &package).map_err(|error| failed("writing its files", &error))?;
    output::out(&format!("{DISTRIBUTION} {} is installed in {}\n", version(), venv.display()));
    Ok(SUCCESS)
}

fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Returns the directory of an environment's packages.
fn site_of(venv: &Path) -> Result<PathBuf, CliFailure> {
    let no_venv = |why: &str| {
        CliFailure::internal(format!("{} is not a virtual environment: {why}", venv.display()))
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
            return Err(CliFailure::internal(format!("{} has Python 3.{minor}", venv.display()))
                .hint(format!("the SDK needs Python 3.{OLDEST_MINOR} or newer")));
        }
        return Ok(site);
    }
    Err(no_venv("it has no lib/python3.*/site-packages"))
}

/// Returns the metadata directories of earlier installations.
fn installed(site: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(site)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(METADATA_PREFIX) && name.ends_with(METADATA_SUFFIX) {
            found.push(path);
        }
    }
    Ok(found)
}

/// Writes the package and the metadata by which pip shows and removes it.
fn write(site: &Path, package: &Path) -> io::Result<()> {
    let metadata = format!("{METADATA_PREFIX}{}{METADATA_SUFFIX}", version());
    let mut record = String::new();
    for (name, content) in sdk::files() {
        let path = package.join(name);
        fs::create_dir_all(path.parent().unwrap_or(package))?;
        fs::write(path, content)?;
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
    // RECORD comes last: without it, pip treats the rest as a broken installation.
    fs::write(site.join(&metadata).join("RECORD"), record)
}
