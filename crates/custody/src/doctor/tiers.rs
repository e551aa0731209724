//! The tiers that this system supports, and why it does not support the others.

use std::io::Read;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};

use rustix::process::{PidfdFlags, pidfd_open};

use crate::Tier;
use crate::link::keeper_link;
use crate::link::wire::SpawnStage;
use crate::process::identity;

/// The tier that `auto` selects.
pub(crate) const AUTO: Tier = Tier::Shim;

/// Checks whether processes have an identity that is never reused; if not, returns the reason.
pub(crate) fn pidfs() -> Result<(), String> {
    pidfd_open(rustix::process::getpid(), PidfdFlags::empty())
        .ok()
        .and_then(|pidfd| identity::pidfs_inode(&pidfd).ok().flatten())
        .map(|_| ())
        .ok_or_else(|| "no pidfs (Linux 6.9 has it): start time and marker tell processes apart".to_owned())
}

/// Checks whether the kernel has pidfds; if not, returns the reason. Without pidfds no worker is started: between the
/// check of a recorded process and the signal to it, its pid could be reused by an unrelated process.
pub(crate) fn pidfds() -> Result<(), String> {
    let own = pidfd_open(rustix::process::getpid(), PidfdFlags::empty())
        .map_err(|errno| no_pidfds("pidfd_open", &errno.into()))?;
    let nothing = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: integers and a null pointer, which the call allows. Signal 0 is only a check: no process receives it.
    let asked = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, own.as_raw_fd(), 0, nothing, 0) };
    if asked < 0 { Err(no_pidfds("pidfd_send_signal", &std::io::Error::last_os_error())) } else { Ok(()) }
}

/// Returns what to do about a kernel that refuses a system call of pidfds.
pub(crate) fn no_pidfds(call: &str, error: &std::io::Error) -> String {
    format!(
        "this kernel has no pidfds ({call}: {error}): snakepit cannot hold workers safely here, since a pid alone may be a \
         stranger's by the time of a signal; run it on Linux 5.3 or newer, in gVisor on a release of 2024 or newer, or with \
         a seccomp profile that allows {call}"
    )
}

/// Checks whether a tier is available; if not, returns the reason.
pub(crate) fn check(tier: Tier) -> Result<(), String> {
    pidfds()?;
    match tier {
        Tier::Namespace => namespace(),
        Tier::Shim | Tier::Group => Ok(()),
    }
}

/// Runs the keeper's program to try the namespaces with the same system calls that a shim makes.
#[expect(clippy::disallowed_methods, reason = "a trial run of the keeper's program, which ends on its own")]
fn namespace() -> Result<(), String> {
    let program = keeper_link::program().map_err(|error| error.to_string())?;
    let mut child = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()))
        .arg("--probe-namespace")
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| error.to_string())?;
    let mut lines = String::new();
    if let Some(stdout) = &mut child.stdout {
        let _ = stdout.take(4096).read_to_string(&mut lines);
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    if matches!(status.code(), Some(0 | 100)) {
        return Ok(());
    }
    let reasons: Vec<String> = lines.lines().filter_map(explain).collect();
    Err(if reasons.is_empty() {
        "the trial of namespaces gave no reason".to_owned()
    } else {
        reasons.join("; ")
    })
}

/// Explains one line of the trial's output: whether a user namespace was used, the stage, and the error number.
pub(crate) fn explain(line: &str) -> Option<String> {
    let mut numbers = line.split(' ').map(|number| number.parse::<i32>().ok());
    let (user_namespace, stage, errno) = (numbers.next()??, numbers.next()??, numbers.next()??);
    let step = match SpawnStage::from_byte(u8::try_from(stage).ok()?)? {
        SpawnStage::UserMap => "mapping the user",
        SpawnStage::MountProc => "mounting /proc",
        _ => "making the namespaces",
    };
    let way = if user_namespace == 1 { "with a user namespace" } else { "as this user" };
    Some(format!("{way}, {step}: {}", std::io::Error::from_raw_os_error(errno)))
}
