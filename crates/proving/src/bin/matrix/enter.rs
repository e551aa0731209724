//! `matrix enter PLACE COMMAND…`: becomes a process of a place and runs the command there.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode};

use snakepit_proving::confinement;

/// The exit status if this program itself fails.
const OURS: u8 = 126;

pub(crate) fn run(words: &[String]) -> ExitCode {
    let [place, program, arguments @ ..] = words else {
        eprintln!("usage: matrix enter PLACE COMMAND…");
        return ExitCode::from(2);
    };
    let mut command = Command::new(program);
    command.args(arguments);
    let done = match place.as_str() {
        "time-namespace" => run_in_time_namespace(&mut command),
        "no-cgroup" => confinement::without_cgroups().and_then(|()| Err(command.exec())),
        name => match confinement::profile(name) {
            Some(profile) => profile.enter().and_then(|()| Err(command.exec())),
            None => Err(io::Error::other("no such place")),
        },
    };
    done.unwrap_or_else(|error| {
        eprintln!("matrix: cannot run {program} in {place}: {error}");
        ExitCode::from(OURS)
    })
}

/// Runs the command in a time namespace in which the machine seems to have started much earlier. Only children are in
/// such a namespace, so this function starts one.
fn run_in_time_namespace(command: &mut Command) -> io::Result<ExitCode> {
    // SAFETY: this affects the children of the calling thread, which is the only one.
    if unsafe { libc::unshare(libc::CLONE_NEWTIME) } != 0 {
        return Err(io::Error::last_os_error());
    }
    std::fs::write("/proc/self/timens_offsets", "boottime 100000 0")?;
    let die_with_us = || {
        // SAFETY: integers only.
        match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: the function makes one system call.
    let status = unsafe { command.pre_exec(die_with_us) }.status()?;
    let code = status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or_default();
    Ok(ExitCode::from(code as u8))
}
