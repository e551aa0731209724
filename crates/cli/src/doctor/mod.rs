//! `snakepit doctor`: what works here, what does not, and why.
//!
//! Owns the verdict and the words. The findings come from custody's probe (which starts a program in each tier), from [`system`] (which
//! reads what the kernel tells), [`state`] (the state directory), [`python`] and [`hardware`].

mod hardware;
mod python;
mod state;
mod system;

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;
use snakepit::custody::{Probe, Tier};

use crate::Common;
use crate::say::{self, Failure};

/// Show which tiers work on this machine, and why the others do not.
#[derive(clap::Args)]
#[command(
    after_help = "Exit status: 0 when `snakepit exec` works here with its defaults, 1 when it does not."
)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
}

/// The tier that `auto` means.
const DEFAULT: Tier = Tier::Shim;

pub(crate) fn run(args: &Args) -> Result<u8, Failure> {
    let dir = args.common.state_dir()?;
    let diagnosis = Diagnosis::make(&dir);
    say::out(&if args.common.json { say::json(&diagnosis) } else { diagnosis.text() });
    Ok(u8::from(!diagnosis.healthy))
}

/// Everything found.
#[derive(Serialize)]
struct Diagnosis {
    version: &'static str,
    healthy: bool,
    default_tier: &'static str,
    kernel: String,
    tiers: Vec<Finding>,
    system: Vec<Finding>,
    limits: Vec<Finding>,
    state_directory: Vec<Finding>,
    python: Vec<Finding>,
    environments: Vec<Finding>,
    hardware: Vec<Finding>,
}

/// One thing that was looked at.
#[derive(Serialize)]
struct Finding {
    name: &'static str,
    verdict: Verdict,
    detail: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    /// Works, or a plain fact.
    Ok,
    /// Works, but somebody may want to know.
    Warn,
    /// Cannot be had here.
    No,
}

impl Verdict {
    fn mark(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::No => "no",
        }
    }
}

impl Finding {
    fn ok(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Ok, detail: detail.into() }
    }

    fn warn(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Warn, detail: detail.into() }
    }

    fn no(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::No, detail: detail.into() }
    }
}

impl Diagnosis {
    fn make(state_dir: &Path) -> Self {
        let probe = snakepit::custody::probe();
        let state_directory = state::examine(state_dir);
        let system = system::examine();
        let nothing_forbids = state_directory.iter().chain(&system).all(|it| it.verdict != Verdict::No);
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
        let width = sections
            .iter()
            .flat_map(|(_, findings)| *findings)
            .map(|finding| finding.name.len())
            .max()
            .unwrap_or(0);
        for (title, findings) in sections {
            let _ = writeln!(text, "\n{title}");
            for Finding { name, verdict, detail } in findings {
                let _ = writeln!(text, "  {:<4}  {name:<width$}  {detail}", verdict.mark());
            }
        }
        let verdict = if self.healthy {
            format!("All is well: `snakepit exec` runs in the {} tier here.", self.default_tier)
        } else {
            "`snakepit exec` does not work here with its defaults; the lines marked `no` say why.".to_owned()
        };
        let _ = writeln!(text, "\n{verdict}");
        text
    }
}

fn tiers(probe: &Probe) -> Vec<Finding> {
    let tried = |name, works: &Result<(), String>, promise| match works {
        Ok(()) => Finding::ok(name, promise),
        Err(why) => Finding::no(name, why.clone()),
    };
    let mut findings: Vec<_> =
        probe.tiers.iter().map(|(tier, works)| tried(tier.name(), works, promise(*tier))).collect();
    findings.push(tried("auto", &probe.auto, "the default: a program was started this way, and ended"));
    findings.push(match &probe.cgroup {
        Ok(path) => Finding::ok("cgroup.kill", format!("backs the tiers up, below {}", path.display())),
        Err(why) => Finding::warn("cgroup.kill", format!("not available: {why}")),
    });
    findings.push(match &probe.pidfs {
        Ok(()) => {
            Finding::ok("pidfs", "processes can be told apart by a file handle that is never used again")
        }
        Err(why) => Finding::warn("pidfs", format!("identity rests on start times: {why}")),
    });
    findings
}

fn promise(tier: Tier) -> &'static str {
    match tier {
        Tier::Namespace => "a PID namespace per worker; holds even when keeper and shims are stopped",
        Tier::Shim => "a subreaper per worker; what auto means",
        Tier::Group => "process groups only: whoever leaves the group escapes",
    }
}
