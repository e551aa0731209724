//! What a pool's workers are started with: the real interpreter, found once, of the environment that was asked for.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::adapter::{Spawner, StartError};
use crate::environment::{Built, Environment, find};

/// An interpreter, and the environment that it belongs to if that was made for it.
pub(crate) struct Interpreter {
    pub(super) path: PathBuf,
    /// Held as long as workers may be started.
    environment: Option<Built>,
}

/// Finds it, or has it made, for workers that run in this directory.
pub(super) async fn resolve(
    environment: &Environment,
    dir: Option<&Path>,
    spawner: &Spawner,
) -> Result<Interpreter, StartError> {
    let here = || std::env::current_dir().unwrap_or_else(|_| "/".into());
    // Version managers decide by the directory and by variables.
    let dir = dir.map_or_else(here, |dir| here().join(dir));
    if environment.installs() {
        // What is installed has paths of its own, which are relative to another directory.
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
    /// What a name means to those who work with it: itself, or a program that was installed beside it.
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

    /// What a shell would have after `activate`, so that programs that were installed beside Python are found.
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
