//! `snakepit env build`: builds environments before the pools need them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use snakepit::custody::{self, Run};
use snakepit::environment::{Built, Environment, EnvironmentError, Python};
use tokio::runtime::Builder;

use super::CacheOptions;
use super::progress::{self, WithoutTerminal};
use crate::shared::failure::CliFailure;
use crate::shared::interrupts::{Interrupts, WatchedSources};
use crate::shared::options::{StateDirOption, shown};
use crate::shared::output::display::ProgressDisplay;
use crate::shared::target::{load_config, no_such_pool};
use crate::shared::{engine, exit_status};

/// Make the environments of a configuration's pools, or one environment with the named packages.
#[derive(clap::Args)]
#[command(
    override_usage = "snakepit env build [-c FILE] [--pool NAME] [OPTIONS]\n       \
                      snakepit env build [--python PYTHON] [-r FILE | --project FILE | REQUIREMENT...] [OPTIONS]",
    after_help = "Exit status: 0 when the environments exist;\n  \
                  1      one cannot be made\n  \
                  2      the command line or the configuration cannot be used\n  \
                  125    snakepit itself failed\n  \
                  128+n  signal n ended it"
)]
pub(super) struct BuildArgs {
    #[command(flatten)]
    place: CacheOptions,
    /// Make the environments of this configuration's pools (by default ./snakepit.toml, unless packages are named).
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["python", "requirements_file", "project", "requirements"])]
    config: Option<PathBuf>,
    /// Make the environment of this pool only.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["python", "requirements_file", "project", "requirements"])]
    pool: Option<String>,
    /// Use this Python: a version (3.12), a path or a name.
    #[arg(long, value_name = "PYTHON")]
    python: Option<String>,
    /// Install the packages that this file lists.
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["project", "requirements"])]
    requirements_file: Option<PathBuf>,
    /// Install the packages of this pyproject.toml or lock file.
    #[arg(long, value_name = "FILE", conflicts_with = "requirements")]
    project: Option<PathBuf>,
    /// Pass this option to pip or uv: --install-arg=--pre. Repeatable.
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    install_arg: Vec<String>,
    #[command(flatten)]
    state: StateDirOption,
    /// Packages to install, in the syntax of pip.
    #[arg(value_name = "REQUIREMENT")]
    requirements: Vec<String>,
}

#[derive(Serialize)]
struct BuildReport {
    environments: Vec<BuiltEnvironment>,
}

#[derive(Serialize)]
struct BuiltEnvironment {
    pool: String,
    key: String,
    path: String,
    python: String,
    made: bool,
}

pub(super) fn run(args: &BuildArgs) -> Result<u8, CliFailure> {
    let (wanted, custody) = wanted(args)?;
    let custody = args.state.apply(custody);
    let mut interrupts = Interrupts::watch(WatchedSources::Signals)?;
    let display = ProgressDisplay::new();
    let json = args.place.output.json;
    progress::show(&display, if json { WithoutTerminal::Silent } else { WithoutTerminal::Steps });
    let runtime = engine::runtime(Builder::new_multi_thread().worker_threads(1))?;
    let ended = runtime.block_on(async {
        let open = tokio::task::spawn_blocking(move || Run::open(custody));
        let opened = open.await.map_err(|error| CliFailure::new("cannot start", &error))?;
        let run = opened.map_err(|error| CliFailure::state(&error))?;
        let ended = tokio::select! {
            built = build_all(&wanted, &run) => {
                built.map(Ok).map_err(|error| CliFailure::of(&error).status(exit_status::FAILED))
            }
            signal = interrupts.signal() => Ok(Err(signal)),
        };
        // A stop without grace ends an unfinished build at once.
        let _ = tokio::task::spawn_blocking(move || run.stop_within(Duration::ZERO)).await;
        ended
    });
    drop(runtime);
    display.clear();
    match ended? {
        Err(signal) => Ok(exit_status::of_signal(signal)),
        Ok(environments) => {
            let report = BuildReport { environments };
            args.place.output.print(&report, || report.text());
            Ok(exit_status::SUCCESS)
        }
    }
}

async fn build_all(
    wanted: &[(String, Environment)],
    run: &Run,
) -> Result<Vec<BuiltEnvironment>, EnvironmentError> {
    let mut lines = Vec::new();
    for (pool, environment) in wanted {
        if let Some(Built { key, path, python, is_new, .. }) = environment.build(run, pool).await? {
            lines.push(BuiltEnvironment {
                pool: pool.clone(),
                key,
                path: shown(&path),
                python: shown(&python),
                made: is_new,
            });
        }
    }
    Ok(lines)
}

impl BuildReport {
    fn text(&self) -> String {
        if self.environments.is_empty() {
            return "No pool installs anything: add `requirements` or `project` to one.\n".to_owned();
        }
        let line = |it: &BuiltEnvironment| {
            let how = if it.made { "made" } else { "was there" };
            format!("{}: {} ({how})\n", it.pool, it.path)
        };
        self.environments.iter().map(line).collect()
    }
}

/// Returns the environments to build, each with its pool, and the configuration of custody.
fn wanted(args: &BuildArgs) -> Result<(Vec<(String, Environment)>, custody::CustodyOptions), CliFailure> {
    let names_packages =
        !args.requirements.is_empty() || args.requirements_file.is_some() || args.project.is_some();
    if !names_packages {
        if args.python.is_some() {
            return Err(CliFailure::usage("--python alone installs nothing")
                .hint("name packages, or a file with -r or --project"));
        }
        return of_configuration(args);
    }
    let environment = Environment::new().install_args(args.install_arg.iter().cloned());
    let environment = match &args.python {
        Some(python) => environment.python(Python::read(python, Path::new(""))),
        None => environment,
    };
    let environment = match (&args.requirements_file, &args.project) {
        (Some(file), _) => environment.requirements_file(file),
        (None, Some(project)) => environment.project(project),
        (None, None) => environment.requirements(args.requirements.iter().cloned()),
    };
    Ok((vec![("env".into(), placed(args, environment))], custody::CustodyOptions::default()))
}

fn placed(args: &BuildArgs, environment: Environment) -> Environment {
    match (&args.place.cache_dir, args.place.cache()) {
        (Some(_), Ok(cache)) => environment.cache_dir(cache.dir()),
        _ => environment,
    }
}

fn of_configuration(
    args: &BuildArgs,
) -> Result<(Vec<(String, Environment)>, custody::CustodyOptions), CliFailure> {
    let path = args.config.as_deref();
    let config = load_config(path, "name a configuration with -c FILE, or packages to install")?;
    if let Some(name) = args.pool.as_deref().filter(|name| config.pool(name).is_none()) {
        return Err(no_such_pool(path, &config, name));
    }
    let is_chosen = |name: &&str| args.pool.as_deref().is_none_or(|chosen| chosen == *name);
    let environments = config.names().filter(is_chosen).filter_map(|name| {
        let environment = config.pool(name)?.environment().filter(|environment| environment.installs())?;
        Some((name.to_owned(), placed(args, environment.clone())))
    });
    Ok((environments.collect(), config.custody().clone()))
}
