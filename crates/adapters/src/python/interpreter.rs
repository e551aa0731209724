//! The interpreter of a pool's workers, and its environment.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::adapter::{Spawner, StartError};
use crate::environment::{Built, Environment, find};

/// An interpreter, and the environment that was built for the pool, if any.
pub(crate) struct Interpreter {
    pub(super) path: PathBuf,
    /// Held for as long as workers may be started.
    environment: Option<Built>,
}

/// Finds the interpreter, or builds the environment, for workers that run in this directory.
pub(super) async fn resolve(
    environment: &Environment,
    dir: Option<&Path>,
    spawner: &Spawner,
) -> Result<Interpreter, StartError> {
    let here = || std::env::current_dir().unwrap_or_else(|_| "/".into());
    // Version managers decide by the directory and by variables.
    let dir = dir.map_or_else(here, |dir| here().join(dir));
    if environment.installs() {
        // Paths in the requirements are relative to the environment's base directory.
        let helpers = spawner.helpers(environment.base())?.env(&environment.variables);
        if let Some(built) = environment.obtain(&helpers).await? {
            return Ok(Interpreter { path: built.python.clone(), environment: Some(built) });
        }
    }
    let helpers = spawner.helpers(dir)?.env(&environment.variables);
    let path = find(environment.python.as_ref(), &helpers).await?;
    Ok(Interpreter { path, environment: None })
}

impl Interpreter {
    /// Returns the program that a name stands for: the interpreter for `python`, a program installed beside it, or the
    /// name itself.
    pub(super) fn program(&self, name: &OsStr) -> OsString {
        if name == "python" || name == "python3" {
            return self.path.clone().into_os_string();
        }
        let is_name = Path::new(name).components().count() == 1;
        let installed = self.environment.as_ref().map(|environment| environment.path.join("bin").join(name));
        match installed {
            Some(installed) if is_name && installed.exists() => installed.into_os_string(),
            _ => name.to_owned(),
        }
    }

    /// Returns the variables that `activate` would set, so that programs installed beside Python are found.
    pub(super) fn variables(&self) -> Vec<(OsString, OsString)> {
        let Some(environment) = &self.environment else { return Vec::new() };
        let bin = environment.path.join("bin");
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut dirs: Vec<PathBuf> = vec![bin.clone()];
        dirs.extend(std::env::split_paths(&path).filter(|dir| dir != Path::new("") && *dir != bin));
        let mut variables = vec![("VIRTUAL_ENV".into(), environment.path.clone().into_os_string())];
        if let Ok(path) = std::env::join_paths(dirs) {
            variables.push(("PATH".into(), path));
        }
        variables
    }
}
