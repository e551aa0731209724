//! Which Python: the one that was asked for, the virtual environment's, or the first in `PATH`.
//!
//! What stands in `PATH` may be a script of a version manager, which costs more at every start than Python itself; it is
//! asked once where the real one is.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::adapter::{Spawner, StartError};
use crate::custody::Command;

pub(super) async fn resolve(asked: Option<&Path>, spawner: &Spawner) -> Result<PathBuf, StartError> {
    let python = match asked {
        Some(python) if python.components().count() == 1 => search(python)?,
        Some(python) => python.to_owned(),
        None => match std::env::var_os("VIRTUAL_ENV") {
            Some(environment) => PathBuf::from(environment).join("bin/python"),
            None => search(Path::new("python3"))?,
        },
    };
    if !python.exists() {
        return Err(StartError::Missing(format!(
            "the Python interpreter {} does not exist",
            python.display()
        )));
    }
    if is_script(&python) { ask(&python, spawner).await } else { Ok(python) }
}

fn search(name: &Path) -> Result<PathBuf, StartError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file());
    found.ok_or_else(|| {
        let name = name.display();
        StartError::Missing(format!(
            "{name} is not in PATH: install Python 3.9 or later, or name an interpreter"
        ))
    })
}

fn is_script(file: &Path) -> bool {
    let mut magic = [0; 2];
    File::open(file).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && &magic == b"#!"
}

async fn ask(python: &Path, spawner: &Spawner) -> Result<PathBuf, StartError> {
    let command = Command::new(python).args(["-I", "-S", "-c", "import sys; print(sys.executable)"]);
    let process = spawner.spawn(command).await?;
    let exit = process.exited().await;
    spawner.output().complete().await;
    let said = spawner.output().lines().0.into_iter().rev().find(|line| line.stream == "stdout");
    match said.map(|line| PathBuf::from(line.text)) {
        Some(real) if real.is_file() => Ok(real),
        _ => Err(StartError::Exited {
            worker: spawner.worker_id().clone(),
            status: exit.status,
            output: spawner.last_lines(),
        }),
    }
}
