//! `snakepit doctor`: reports what works on this machine, what does not, and why.
//!
//! Owns the report. The findings come from custody's probe, which starts a program in each tier, and from [`system`]
//! (what the kernel reports), [`mod@state_dir`], [`python`] and [`hardware`].

mod hardware;
mod python;
mod state_dir;
mod system;

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;
use snakepit::custody::{Probe, Tier};

use crate::shared::exit_status::{FAILED, SUCCESS};
use crate::shared::failure::CliFailure;
use crate::shared::options::StateReportOptions;

/// Show which tiers work on this machine, and why the others do not.
#[derive(clap::Args)]
#[command(
    after_help = "Exit status: 0 when `snakepit exec` works here with its defaults, 1 when it does not."
)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    options: StateReportOptions,
}

/// The tier that `auto` chooses.
const DEFAULT: Tier = Tier::Shim;

pub(crate) fn run(args: &DoctorArgs) -> Result<u8, CliFailure> {
    let diagnosis = Diagnosis::make(&args.options.state.resolve()?);
    args.options.output.print(&diagnosis, || diagnosis.text());
    Ok(if diagnosis.healthy { SUCCESS } else { FAILED })
}

#[derive(Serialize)]
struct Diagnosis {
    version: &'static str,
    healthy: bool,
    default_tier: &'static str,
    kernel: String,
    tiers: Vec<Check>,
    system: Vec<Check>,
    limits: Vec<Check>,
    state_directory: Vec<Check>,
    python: Vec<Check>,
    environments: Vec<Check>,
    hardware: Vec<Check>,
}

/// A check and its result.
#[derive(Serialize)]
struct Check {
    name: &'static str,
    #[serde(flatten)]
    finding: Finding,
}

#[derive(Serialize)]
#[serde(tag = "verdict", content = "detail", rename_all = "lowercase")]
enum Finding {
    /// It works, or it is a plain fact.
    Ok(String),
    /// It works, but needs attention.
    Warn(String),
    /// It does not work here.
    No(String),
}

fn ok(detail: impl Into<String>) -> Finding {
    Finding::Ok(detail.into())
}

fn warn(detail: impl Into<String>) -> Finding {
    Finding::Warn(detail.into())
}

fn no(detail: impl Into<String>) -> Finding {
    Finding::No(detail.into())
}

fn checks(findings: impl IntoIterator<Item = (&'static str, Finding)>) -> Vec<Check> {
    findings.into_iter().map(|(name, finding)| Check { name, finding }).collect()
}

impl Diagnosis {
    fn make(state_dir: &Path) -> Self {
        let probe = snakepit::custody::probe();
        let state_directory = state_dir::examine(state_dir);
        let system = system::examine();
        let nothing_forbids =
            state_directory.iter().chain(&system).all(|check| !matches!(check.finding, Finding::No(_)));
        Self {
            version: env!("CARGO_PKG_VERSION"),
            healthy: probe.auto.is_ok() && nothing_forbids,
            default_tier: DEFAULT.name(),
            tiers: tiers(&probe),
            kernel: probe.kernel,
            system,
            limits: system::limits(),
            state_directory,
            python: python::examine(),
            environments: hardware::environments(),
            hardware: hardware::examine(),
        }
    }

    fn text(&self) -> String {
        let mut text = format!("snakepit {} on Linux {}\n", self.version, self.kernel);
        let sections = [
            ("Tiers", &self.tiers),
            ("System", &self.system),
            ("Limits", &self.limits),
            ("State directory", &self.state_directory),
            ("Python", &self.python),
            ("Environments", &self.environments),
            ("Hardware", &self.hardware),
        ];
        let names = sections.iter().flat_map(|(_, checks)| *checks).map(|check| check.name.len());
        let width = names.max().unwrap_or(0);
        for (title, checks) in sections {
            let _ = writeln!(text, "\n{title}");
            for Check { name, finding } in checks {
                let (mark, detail) = match finding {
                    Finding::Ok(detail) => ("ok", detail),
                    Finding::Warn(detail) => ("warn", detail),
                    Finding::No(detail) => ("no", detail),
                };
                let _ = writeln!(text, "  {mark:<4}  {name:<width$}  {detail}");
            }
        }
        let verdict = if self.healthy {
            format!("All is well: `snakepit exec` runs in the {} tier here.", self.default_tier)
        } else {
            "`snakepit exec` does not work here with its defaults; the lines marked `no` explain why."
                .to_owned()
        };
        let _ = writeln!(text, "\n{verdict}");
        text
    }
}

fn tiers(probe: &Probe) -> Vec<Check> {
    let tried = |works: &Result<(), String>, promise| match works {
        Ok(()) => ok(promise),
        Err(why) => no(why.clone()),
    };
    let tiers = probe.tiers.iter().map(|found| (found.tier.name(), tried(&found.works, promise(found.tier))));
    let auto = tried(&probe.auto, "the default: a program was started and ended this way");
    let cgroup = match &probe.cgroup {
        Ok(path) => ok(format!("backs the tiers up, below {}", path.display())),
        Err(why) => warn(format!("not available: {why}")),
    };
    let pidfs = match &probe.pidfs {
        Ok(()) => ok("processes are identified by a file handle that is never reused"),
        Err(why) => warn(format!("processes are identified by start times: {why}")),
    };
    checks(tiers.chain([("auto", auto), ("cgroup.kill", cgroup), ("pidfs", pidfs)]))
}

fn promise(tier: Tier) -> &'static str {
    match tier {
        Tier::Namespace => "a PID namespace per worker; holds even when keeper and shims are stopped",
        Tier::Shim => "a subreaper per worker; auto chooses it",
        Tier::Group => "process groups only: a process that leaves its group escapes",
    }
}
