//! What a pool's workers are started with: the real interpreter, found once, of the environment that was asked for.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::PythonWorker;
use crate::adapter::{Spawner, StartError};
use crate::environment::{Built, find};

/// An interpreter, and the environment that it belongs to if that was made for it.
pub(super) struct Interpreter {
    pub(super) path: PathBuf,
    /// Held as long as workers may be started.
    environment: Option<Built>,
}

pub(super) async fn resolve(worker: &PythonWorker, spawner: &Spawner) -> Result<Interpreter, StartError> {
    let here = || std::env::current_dir().unwrap_or_else(|_| "/".into());
    // Version managers decide by the directory and by variables.
    let dir = worker.dir.as_ref().map_or_else(here, |dir| here().join(dir));
    let environment = &worker.environment;
    if environment.installs() {
        // What is installed has paths of its own, which are relative to another directory.
        let errands = spawner.errands(environment.base())?.env(&worker.env);
        if let Some(built) = environment.obtain(&errands).await? {
            return Ok(Interpreter { path: built.python.clone(), environment: Some(built) });
        }
    }
    let errands = spawner.errands(dir)?.env(&worker.env);
    let path = find(environment.python.as_ref(), &errands).await?;
    Ok(Interpreter { path, environment: None })
}

impl Interpreter {
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
