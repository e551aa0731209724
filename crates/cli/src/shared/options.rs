//! Options that several commands share.

use std::path::{Path, PathBuf};

use serde::Serialize;
use snakepit::custody;

use crate::shared::failure::CliFailure;
use crate::shared::output;

#[derive(clap::Args)]
pub(crate) struct StateDirOption {
    /// Use this state directory, where runs are recorded.
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

impl StateDirOption {
    /// Returns the directory of the option, or else the default one.
    pub(crate) fn resolve(&self) -> Result<PathBuf, CliFailure> {
        match &self.state_dir {
            Some(dir) => Ok(dir.clone()),
            None => custody::default_state_dir().map_err(|error| {
                CliFailure::new("cannot choose a state directory", &error).hint("name one with --state-dir")
            }),
        }
    }

    /// Overrides the directory of a configuration.
    pub(crate) fn apply(&self, mut config: custody::CustodyOptions) -> custody::CustodyOptions {
        if let Some(dir) = &self.state_dir {
            config.state_dir = Some(dir.clone());
        }
        config
    }
}

#[derive(clap::Args)]
pub(crate) struct JsonOption {
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

impl JsonOption {
    /// Prints a report in the requested format.
    pub(crate) fn print(&self, report: &impl Serialize, text: impl FnOnce() -> String) {
        output::out(&if self.json { output::json(report) } else { text() });
    }
}

/// The options of a command that inspects a state directory.
#[derive(clap::Args)]
pub(crate) struct StateReportOptions {
    #[command(flatten)]
    pub(crate) state: StateDirOption,
    #[command(flatten)]
    pub(crate) output: JsonOption,
}

/// Formats a path for a report.
pub(crate) fn shown(path: &Path) -> String {
    path.display().to_string()
}
