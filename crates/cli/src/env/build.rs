//! `snakepit env build`: makes an environment ahead of the pool that needs it.

use std::path::{Path, PathBuf};

use serde::Serialize;
use snakepit::custody::{self, Run};
use snakepit::environment::{Built, Environment, EnvironmentError, Python};
use snakepit::{Config, Pool};

use super::progress::{self, Elsewhere};
use super::{Place, cannot};
use crate::call::HOME;
use crate::call::outside::{Attention, Happening, Outside};
use crate::call::screen::Screen;
use crate::say::{self, Failure, USAGE};

/// Make the environments of a configuration's pools, or one of the packages that are named here.
#[derive(clap::Args)]
#[command(
    override_usage = "snakepit env build [-c FILE] [--pool NAME] [OPTIONS]\n       \
                      snakepit env build [--python PYTHON] [-r FILE | --project FILE | REQUIREMENT...] [OPTIONS]",
    after_help = "Exit status: 0 when they are there, 1 when one cannot be made, 2 when this command line or the \
                  configuration\ncannot be used, 125 when snakepit itself failed, 128+n when signal n ended it."
)]
pub(super) struct Args {
    #[command(flatten)]
    place: Place,
    /// A configuration whose pools get their environments; ./snakepit.toml unless packages are named.
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["python", "requirements_file", "project", "requirements"])]
    config: Option<PathBuf>,
    /// Only the one of this pool.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["python", "requirements_file", "project", "requirements"])]
    pool: Option<String>,
    /// A version (3.12), an interpreter's path or its name.
    #[arg(long, value_name = "PYTHON")]
    python: Option<String>,
    /// A file that lists packages.
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["project", "requirements"])]
    requirements_file: Option<PathBuf>,
    /// A pyproject.toml or a lock file whose packages are installed.
    #[arg(long, value_name = "FILE", conflicts_with = "requirements")]
    project: Option<PathBuf>,
    /// A further option for pip or uv; may be said several times: --install-arg=--pre
    #[arg(long = "install-arg", value_name = "ARG", allow_hyphen_values = true)]
    further: Vec<String>,
    /// Where the run is recorded.
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Packages, as pip has them.
    #[arg(value_name = "REQUIREMENT")]
    requirements: Vec<String>,
}

#[derive(Serialize)]
struct Report {
    environments: Vec<Line>,
}

#[derive(Serialize)]
struct Line {
    pool: String,
    key: String,
    path: String,
    python: String,
    made: bool,
}

pub(super) fn run(args: &Args) -> Result<u8, Failure> {
    let (wanted, mut custody) = wanted(args)?;
    if args.state_dir.is_some() {
        custody.state_dir.clone_from(&args.state_dir);
    }
    let mut outside = Outside::watch(Attention::Signals)
        .map_err(|error| Failure::new("cannot listen to signals", &error))?;
    let screen = Screen::new();
    progress::show(&screen, if args.place.json { Elsewhere::Silent } else { Elsewhere::Steps });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Failure::new("cannot start a runtime", &error))?;
    let ended = runtime.block_on(async {
        let open = tokio::task::spawn_blocking(move || Run::open(custody));
        let opened = open.await.map_err(|error| Failure::new("cannot start", &error))?;
        let run = opened.map_err(|error| crate::cannot_use_state(&error))?;
        let ended = tokio::select! {
            built = build_all(&wanted, &run) => built.map_err(|error| cannot(&error).status(1)).map(Ended::Built),
            signal = signalled(&mut outside) => Ok(Ended::By(signal)),
        };
        // What was begun is ended at once: nobody waits for it any more.
        let _ = tokio::task::spawn_blocking(move || run.stop_within(std::time::Duration::ZERO)).await;
        ended
    });
    drop(runtime);
    screen.clear();
    match ended? {
        Ended::By(status) => Ok(status),
        Ended::Built(lines) => {
            say::out(&if args.place.json {
                say::json(&Report { environments: lines })
            } else {
                text(&lines)
            });
            Ok(0)
        }
    }
}

enum Ended {
    Built(Vec<Line>),
    /// By a signal, with this status.
    By(u8),
}

async fn signalled(outside: &mut Outside) -> u8 {
    loop {
        if let Happening::Signal(signal) = outside.next().await {
            return 128 + signal as u8;
        }
    }
}

async fn build_all(wanted: &[(String, Environment)], run: &Run) -> Result<Vec<Line>, EnvironmentError> {
    let mut lines = Vec::new();
    for (pool, environment) in wanted {
        if let Some(Built { key, path, python, is_new, .. }) = environment.build(run, pool).await? {
            lines.push(Line {
                pool: pool.clone(),
                key,
                path: path.display().to_string(),
                python: python.display().to_string(),
                made: is_new,
            });
        }
    }
    Ok(lines)
}

fn text(lines: &[Line]) -> String {
    if lines.is_empty() {
        return "No pool installs anything: add `requirements` or `project` to one.\n".to_owned();
    }
    let line = |it: &Line| {
        let how = if it.made { "made" } else { "was there" };
        format!("{}: {} ({how})\n", it.pool, it.path)
    };
    lines.iter().map(line).collect()
}

/// What is to be made, for whom, and how processes are kept.
fn wanted(args: &Args) -> Result<(Vec<(String, Environment)>, custody::Config), Failure> {
    let names_packages =
        !args.requirements.is_empty() || args.requirements_file.is_some() || args.project.is_some();
    if !names_packages {
        if args.python.is_some() {
            return Err(Failure::plain("--python alone installs nothing")
                .status(USAGE)
                .hint("name packages, or a file with -r or --project"));
        }
        return of_configuration(args);
    }
    let environment = Environment::new().install_args(args.further.iter().cloned());
    let environment = match &args.python {
        Some(python) => environment.python(Python::read(python, Path::new(""))),
        None => environment,
    };
    let environment = match (&args.requirements_file, &args.project) {
        (Some(file), _) => environment.requirements_file(file),
        (None, Some(project)) => environment.project(project),
        (None, None) => environment.requirements(args.requirements.iter().cloned()),
    };
    Ok((vec![("env".into(), placed(args, environment))], custody::Config::default()))
}

fn placed(args: &Args, environment: Environment) -> Environment {
    match (&args.place.cache_dir, args.place.cache()) {
        (Some(_), Ok(cache)) => environment.cache_dir(cache.dir()),
        _ => environment,
    }
}

fn of_configuration(args: &Args) -> Result<(Vec<(String, Environment)>, custody::Config), Failure> {
    let path = args.config.as_deref().unwrap_or(Path::new(HOME));
    let config = Config::load(path).map_err(|error| {
        Failure::of(&error).status(USAGE).hint("name a configuration with -c, or packages to install")
    })?;
    let pools: Vec<(&str, &Pool)> = config.names().zip(config.pools()).collect();
    let chosen: Vec<_> = match &args.pool {
        Some(name) => pools.iter().filter(|(known, _)| known == name).collect(),
        None => pools.iter().collect(),
    };
    if let (Some(name), true) = (&args.pool, chosen.is_empty()) {
        let known: Vec<&str> = config.names().collect();
        return Err(Failure::plain(format!("{} has no pool {name}", path.display()))
            .status(USAGE)
            .hint(format!("it has {}", known.join(", "))));
    }
    let environments = chosen.into_iter().filter_map(|(name, pool)| {
        let environment = pool.environment().filter(|environment| environment.installs())?;
        Some(((*name).to_owned(), placed(args, environment.clone())))
    });
    Ok((environments.collect(), config.custody().clone()))
}
