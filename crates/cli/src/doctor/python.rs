//! Which Python a worker would get, and whether it starts as fast as it could.

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::Finding;

/// How long an interpreter may take to tell who it is.
const PATIENCE: Duration = Duration::from_secs(10);

const WHO: &str = "import sys; print(sys.executable); print('.'.join(map(str, sys.version_info[:3])))";

pub(super) fn examine() -> Vec<Finding> {
    const NAME: &str = "python3";
    let Some(path) = in_path("python3") else {
        return vec![Finding::warn(
            NAME,
            "not in PATH: Python workers need one, commands of other languages do not",
        )];
    };
    let answer = match ask(&path, &["-I", "-c", WHO]) {
        Ok(answer) => answer,
        Err(why) => return vec![Finding::warn(NAME, format!("{}: {why}", path.display()))],
    };
    let mut lines = answer.lines();
    let (Some(executable), Some(version)) = (lines.next(), lines.next()) else {
        return vec![Finding::warn(NAME, format!("{} does not answer like a Python", path.display()))];
    };
    let found = Finding::ok(NAME, format!("{version}, {executable}"));
    if is_script(&path) {
        let shim = format!(
            "{} is a script (a pyenv shim?) around it: it costs a pool's start about 0.1 s",
            path.display()
        );
        vec![found, Finding::warn("shim", format!("{shim}; name {executable} instead"))]
    } else {
        vec![found]
    }
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

/// Asks a program, for a bounded time.
#[expect(clippy::disallowed_methods, reason = "the doctor must answer where custody does not work")]
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
        let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        let in_time =
            poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&patience)).is_ok_and(|ready| ready > 0);
        if !in_time {
            let _ = child.kill();
        }
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    if !status.success() {
        return Err(format!("does not run ({status})"));
    }
    // Whoever else holds the pipe open must not hold us: what was said is there already.
    let mut answer = vec![0; 4096];
    let length = child.stdout.take().map_or(Ok(0), |mut stdout| stdout.read(&mut answer));
    answer.truncate(length.map_err(|error| error.to_string())?);
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
