//! What `/proc` shows about this machine, the caller's namespaces, and a process.
//!
//! A failed look is an error here, never an empty result, because callers decide about the lives of processes by these
//! answers.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;

use crate::Pid;
use crate::failpoint::hit;

use super::digest::fnv1a;
use super::pid_scope::PidScope;
use super::proc_stat::ProcStat;

/// The inode of the PID namespace that the machine booted with, the same on every Linux.
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// The inode of the time namespace that the machine booted with.
const FIRST_TIME_NAMESPACE: u64 = 0xEFFF_FFFA;

/// Why custody cannot work in the caller's environment: pids would not mean what they seem to mean.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PidScopeError {
    /// No `/proc` shows the caller.
    #[error("/proc does not show this process: mount it (`mount -t proc proc /proc`)")]
    NoProc(#[source] io::Error),
    /// The boot id cannot be read.
    #[error(
        "cannot read /proc/sys/kernel/random/boot_id, so runs of an earlier boot could not be recognized: mount /proc \
         without subset=pid (in a systemd unit: ProcSubset=all)"
    )]
    NoBootId(#[source] io::Error),
    /// `/proc` shows another PID namespace than the caller's.
    #[error(
        "/proc shows another PID namespace, where this process has the pid {shown} and not {own}: mount a /proc of this \
         namespace (`unshare --pid --fork --mount-proc`, or `nsenter` with `--mount` as well)"
    )]
    ForeignProc {
        /// The caller's pid in `/proc`.
        shown: String,
        /// The caller's pid.
        own: Pid,
    },
    /// Children of the caller start in another PID namespace.
    #[error(
        "children of this process start in another PID namespace: start this process itself in that namespace \
         (`unshare --pid` needs `--fork`)"
    )]
    ChildrenElsewhere,
}

impl PidScope {
    pub(crate) fn here() -> Result<Self, PidScopeError> {
        // Reads the thread's entry, because the process's own entry is empty once its main thread has ended.
        let status = fs::read_to_string("/proc/thread-self/status").map_err(PidScopeError::NoProc)?;
        let own = Pid::current();
        // The line has one number for each namespace, from that of `/proc` down to the thread's own. `/proc/self` alone
        // is not enough, because the number could by chance be the same in both. gVisor has no such line, and no
        // `/proc` of another namespace either.
        let shown = field(&status, "NStgid:").or_else(|| field(&status, "Tgid:")).unwrap_or_default();
        if shown.trim() != own.to_string() {
            return Err(PidScopeError::ForeignProc { shown: shown.trim().replace('\t', "/"), own });
        }
        let namespace = |name| fs::metadata(format!("/proc/thread-self/ns/{name}")).map(|file| file.ino());
        let pidns = namespace("pid").map_err(PidScopeError::NoProc)?;
        match namespace("pid_for_children") {
            Ok(children) if children == pidns => {}
            Ok(_) => return Err(PidScopeError::ChildrenElsewhere),
            // If the entry is listed but missing, the namespace is still empty. gVisor does not list the entry.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if lists_children_namespace().map_err(PidScopeError::NoProc)? {
                    return Err(PidScopeError::ChildrenElsewhere);
                }
            }
            Err(error) => return Err(PidScopeError::NoProc(error)),
        }
        let boot = boot_id().map_err(PidScopeError::NoBootId)?;
        Ok(Self { boot, pidns })
    }

    /// Returns whether the caller can see every process of the machine: as root, in the first PID namespace.
    pub(crate) fn sees_all(self) -> bool {
        self.pidns == FIRST_PID_NAMESPACE && rustix::process::geteuid().is_root()
    }
}

/// Returns whether this kernel shows in which PID namespace children start.
fn lists_children_namespace() -> io::Result<bool> {
    for entry in fs::read_dir("/proc/thread-self/ns")? {
        if entry?.file_name() == "pid_for_children" {
            return Ok(true);
        }
    }
    Ok(false)
}

fn boot_id() -> io::Result<[u8; 16]> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(uuid::Uuid::try_parse(text.trim()).map_err(io::Error::other)?.into_bytes())
}

/// Returns the rest of the line that begins with `name`.
pub(crate) fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name))
}

/// Returns `None` for a read of `/proc/PID/…` whose process has ended. Any other failure stays an error.
fn of_process<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads `/proc/PID/stat`. Returns `None` if there is no such process.
pub(crate) fn stat(pid: Pid) -> io::Result<Option<ProcStat>> {
    hit("look.stat")?;
    let Some(text) = of_process(fs::read(format!("/proc/{pid}/stat")))? else { return Ok(None) };
    let unknown = || io::Error::other(format!("cannot parse /proc/{pid}/stat"));
    ProcStat::parse(&text).ok_or_else(unknown).map(Some)
}

/// Returns the number of clock ticks by which the caller's time namespace shifts start times. Without this offset, a
/// start time that was written in one time namespace would match no process in another.
pub(crate) fn clock_offset() -> io::Result<i64> {
    const NANOS_PER_TICK: i64 = 10_000_000;
    let inode = |name| fs::metadata(format!("/proc/thread-self/ns/{name}")).map(|file| file.ino());
    let own = match inode("time") {
        Ok(FIRST_TIME_NAMESPACE) => return Ok(0),
        Ok(inode) => inode,
        // Kernels before Linux 5.6 have no time namespaces.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let offsets = fs::read_to_string("/proc/self/timens_offsets")?;
    let mut boottime = field(&offsets, "boottime").unwrap_or_default().split_ascii_whitespace();
    let mut number = || boottime.next().and_then(|number| number.parse::<i64>().ok());
    match (number(), number()) {
        // The file shows the offsets of future children, and only whole ticks can be subtracted.
        (Some(seconds), Some(nanos)) if inode("time_for_children")? == own && nanos % NANOS_PER_TICK == 0 => {
            Ok(seconds * (1_000_000_000 / NANOS_PER_TICK) + nanos / NANOS_PER_TICK)
        }
        _ => Err(io::Error::other("the offset of this time namespace is not a whole number of clock ticks")),
    }
}

/// Returns the real and the effective user of a process, or `None` if there is no such process.
pub(crate) fn users(pid: Pid) -> io::Result<Option<[u32; 2]>> {
    hit("look.users")?;
    let Some(status) = of_process(fs::read_to_string(format!("/proc/{pid}/status")))? else {
        return Ok(None);
    };
    let mut numbers = field(&status, "Uid:").unwrap_or_default().split_ascii_whitespace();
    let mut number = || numbers.next().and_then(|number| number.parse().ok());
    match (number(), number()) {
        (Some(real), Some(effective)) => Ok(Some([real, effective])),
        _ => Err(io::Error::other(format!("cannot parse /proc/{pid}/status"))),
    }
}

/// Returns a digest of the cgroups of a process, which every user may read, or 0 if there is no such process.
pub(crate) fn cgroups(pid: Pid) -> io::Result<u64> {
    hit("look.cgroup")?;
    let text = of_process(fs::read(format!("/proc/{pid}/cgroup")))?.unwrap_or_default();
    Ok(if text.is_empty() { 0 } else { fnv1a(text) })
}

/// Returns the bytes of `/proc/PID/environ`, or `None` if there is no such process.
pub(crate) fn environment(pid: Pid) -> io::Result<Option<Vec<u8>>> {
    /// The most bytes that are read, more than a program can be started with. A process can claim terabytes.
    const MOST: u64 = 8 << 20;
    hit("look.environment")?;
    of_process(read_beginning(&format!("/proc/{pid}/environ"), MOST))
}

/// Returns the first words of a process's command line, or `None` if there is no such process.
pub(crate) fn words(pid: Pid) -> io::Result<Option<Vec<u8>>> {
    hit("look.command_line")?;
    of_process(read_beginning(&format!("/proc/{pid}/cmdline"), COMMAND_LINE))
}

/// The most bytes that are read of a command line.
const COMMAND_LINE: u64 = 4096;

fn read_beginning(path: &str, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the command line of a process for people, or its name in brackets.
pub(crate) fn command_line(pid: Pid) -> String {
    let line = read_beginning(&format!("/proc/{pid}/cmdline"), COMMAND_LINE).unwrap_or_default();
    let words: Vec<_> =
        line.split(|byte| *byte == 0).filter(|word| !word.is_empty()).map(String::from_utf8_lossy).collect();
    if words.is_empty() {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        return format!("[{}]", name.trim());
    }
    let text: String = words.join(" ").chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().count() > 120 { text.chars().take(119).chain(['…']).collect() } else { text }
}

/// Returns the pids of all visible processes.
pub(crate) fn all_pids() -> io::Result<Vec<Pid>> {
    hit("look.processes")?;
    let mut pids = Vec::new();
    for entry in fs::read_dir("/proc")? {
        pids.extend(entry?.file_name().to_str().and_then(|name| Pid::new(name.parse().ok()?)));
    }
    Ok(pids)
}

/// Returns the PID namespace of a process, for callers in the first one, or `None` if there is no such process.
pub(crate) fn pid_namespace(pid: Pid) -> io::Result<Option<u64>> {
    match of_process(fs::metadata(format!("/proc/{pid}/ns/pid"))) {
        Ok(file) => Ok(file.map(|file| file.ino())),
        // Not even root may read the namespaces of some processes. A process with a single number is in the first
        // namespace.
        Err(error) => match of_process(fs::read_to_string(format!("/proc/{pid}/status")))? {
            Some(status) => match field(&status, "NStgid:").map(|numbers| numbers.split_whitespace().count())
            {
                Some(1) => Ok(Some(FIRST_PID_NAMESPACE)),
                _ => Err(error),
            },
            None => Ok(None),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_shows_the_own_process() {
        let stat = stat(Pid::current()).unwrap().unwrap();
        assert_eq!(stat.parent, rustix::process::getppid().unwrap().as_raw_nonzero().get());
        assert!(stat.start > 0);
        assert_eq!(users(Pid::current()).unwrap().unwrap()[1], rustix::process::geteuid().as_raw());
    }

    #[test]
    fn a_missing_process_is_none_and_not_an_error() {
        let nobody = Pid::new(i32::MAX).unwrap();
        assert!(stat(nobody).unwrap().is_none());
        assert!(environment(nobody).unwrap().is_none());
    }
}
