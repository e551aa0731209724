//! Reports which Python a worker gets, and whether that Python starts without detours.

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::{Check, checks, ok, warn};

/// The time in which an interpreter must identify itself.
const TIMEOUT: Duration = Duration::from_secs(10);

const IDENTIFY: &str = "import sys; print(sys.executable); print('.'.join(map(str, sys.version_info[:3])))";

pub(super) fn examine() -> Vec<Check> {
    let Some(path) = in_path("python3") else {
        let absent = "not in PATH: Python workers need it, commands in other languages do not";
        return checks([("python3", warn(absent))]);
    };
    let shown = path.display();
    let answer = match ask(&path, &["-I", "-c", IDENTIFY]) {
        Ok(answer) => answer,
        Err(why) => return checks([("python3", warn(format!("{shown}: {why}")))]),
    };
    let mut lines = answer.lines();
    let (Some(executable), Some(version)) = (lines.next(), lines.next()) else {
        return checks([("python3", warn(format!("{shown} does not behave like Python")))]);
    };
    let shim = is_script(&path).then(|| {
        warn(format!(
            "{shown} is a script (a pyenv shim?) that starts it, which delays the start of a pool by about 0.1 s; \
             name {executable} instead"
        ))
    });
    let found = ok(format!("{version}, {executable}"));
    checks([("python3", found)].into_iter().chain(shim.map(|shim| ("shim", shim))))
}

pub(super) fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let is_program = |path: &PathBuf| {
        path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(is_program)
}

fn is_script(path: &Path) -> bool {
    let mut start = [0; 2];
    std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok() && &start == b"#!"
}

/// Runs a program for a limited time and returns its output.
#[expect(clippy::disallowed_methods, reason = "the doctor must work where custody does not")]
pub(super) fn ask(program: &Path, args: &[&str]) -> Result<String, String> {
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| error.to_string())?;
    let ended = Pid::from_raw(child.id() as i32).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    if let Some(pidfd) = ended {
        let timeout = Timespec { tv_sec: TIMEOUT.as_secs() as i64, tv_nsec: 0 };
        let in_time =
            poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&timeout)).is_ok_and(|ready| ready > 0);
        if !in_time {
            let _ = child.kill();
        }
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    if !status.success() {
        return Err(format!("does not run ({status})"));
    }
    // Another process may hold the pipe open, but everything that the program printed is already in it.
    let mut answer = vec![0; 4096];
    let length = child.stdout.take().map_or(Ok(0), |mut stdout| stdout.read(&mut answer));
    answer.truncate(length.map_err(|error| error.to_string())?);
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
