//! `proving-confined PROFILE [--] COMMAND…`: confines itself like a process of a container runtime or a service
//! manager, and then executes the command.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use snakepit_proving::confinement::{ALL, profile};

/// The exit status if this program itself fails.
const OURS: u8 = 126;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let chosen = words.next().and_then(|name| profile(name.to_str()?));
    let command: Vec<OsString> = words.collect();
    let command = command.strip_prefix(&[OsString::from("--")]).unwrap_or(&command);
    let (Some(profile), Some((program, arguments))) = (chosen, command.split_first()) else {
        let names = ALL.map(|profile| profile.name).join("|");
        eprintln!("usage: proving-confined {names} [--] COMMAND…");
        return ExitCode::from(2);
    };
    if let Err(error) = profile.enter() {
        eprintln!("proving-confined: cannot become a process of {}: {error} (this needs root)", profile.name);
        return ExitCode::from(OURS);
    }
    let error = Command::new(program).args(arguments).exec();
    eprintln!("proving-confined: cannot run {}: {error}", program.display());
    ExitCode::from(OURS)
}
