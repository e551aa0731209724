//! What is true of this machine and of the caller's namespaces, and what `/proc` says of a process.
//!
//! An error of looking is an error here, never "there is nobody": callers decide about lives by these answers.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;

use crate::Pid;
use crate::failpoint::hit;

/// The PID namespace that the machine booted with has this inode on every Linux.
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// And its time namespace this one.
const FIRST_TIME_NAMESPACE: u64 = 0xEFFF_FFFA;

/// The place in which a pid means something: one boot of one machine, one PID namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) boot: [u8; 16],
    pub(crate) pidns: u64,
}

/// Why custody cannot work where the caller is: numbers of processes would not mean what they seem to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// There is no `/proc` that shows the caller.
    #[error("/proc does not show this process: mount it (`mount -t proc proc /proc`)")]
    NoProc(#[source] io::Error),
    /// The machine's boot has no name here.
    #[error(
        "/proc/sys/kernel/random/boot_id cannot be read, so runs of another boot could not be told apart: \
         mount /proc without subset=pid (in a systemd unit: ProcSubset=all)"
    )]
    NoBootId(#[source] io::Error),
    /// `/proc` shows another PID namespace than the caller's.
    #[error(
        "/proc shows another PID namespace, where this process has the pid {shown} and not {own}: mount one of its own \
         (`unshare --pid --fork --mount-proc`, or `nsenter` with `--mount` as well)"
    )]
    ForeignProc {
        /// The caller's pid in `/proc`.
        shown: String,
        /// The caller's pid.
        own: Pid,
    },
    /// What the caller starts is born into another PID namespace.
    #[error(
        "what this process starts is born into another PID namespace: start it as a child in that namespace \
         (`unshare --pid` needs `--fork`)"
    )]
    ChildrenElsewhere,
}

impl Place {
    pub(crate) fn here() -> Result<Self, PlaceError> {
        // Of the thread: the process's own entry is empty once its main thread has ended.
        let status = fs::read_to_string("/proc/thread-self/status").map_err(PlaceError::NoProc)?;
        let own = Pid::current();
        // One number for each namespace from that of `/proc` down to the thread's own. `/proc/self` alone could
        // be the same number in both by chance.
        // gVisor has no such line, and no `/proc` of another namespace either.
        let shown = field(&status, "NStgid:").or_else(|| field(&status, "Tgid:")).unwrap_or_default();
        if shown.trim() != own.to_string() {
            return Err(PlaceError::ForeignProc { shown: shown.trim().replace('\t', "/"), own });
        }
        let namespace = |name| fs::metadata(format!("/proc/thread-self/ns/{name}")).map(|file| file.ino());
        let pidns = namespace("pid").map_err(PlaceError::NoProc)?;
        match namespace("pid_for_children") {
            Ok(children) if children == pidns => {}
            Ok(_) => return Err(PlaceError::ChildrenElsewhere),
            // Listed, but not there: a namespace that has nobody in it yet. gVisor does not list it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if lists_children_namespace().map_err(PlaceError::NoProc)? {
                    return Err(PlaceError::ChildrenElsewhere);
                }
            }
            Err(error) => return Err(PlaceError::NoProc(error)),
        }
        let boot = boot_id().map_err(PlaceError::NoBootId)?;
        Ok(Self { boot, pidns })
    }

    /// Whether every process of the machine can be seen from here: from the first PID namespace, by root.
    pub(crate) fn sees_all(self) -> bool {
        self.pidns == FIRST_PID_NAMESPACE && rustix::process::geteuid().is_root()
    }
}

/// Whether this kernel tells into which PID namespace children are born.
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

/// The rest of the line that begins with `name`.
pub(crate) fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name))
}

/// The fields of `/proc/PID/stat` that custody needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stat {
    pub(crate) state: char,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    pub(crate) session: i32,
    /// Clock ticks from boot to its start, as the caller's time namespace counts them: see [`clock_offset`].
    pub(crate) start: u64,
}

/// Reads of `/proc/PID/…`, where a process that ends meanwhile is gone and everything else is an error.
fn of_process<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What `/proc` says of a process; `None` if there is none.
pub(crate) fn stat(pid: Pid) -> io::Result<Option<Stat>> {
    hit("look.stat")?;
    let Some(text) = of_process(fs::read(format!("/proc/{pid}/stat")))? else { return Ok(None) };
    let unknown = || io::Error::other(format!("/proc/{pid}/stat is not as Linux writes it"));
    parse_stat(&text).ok_or_else(unknown).map(Some)
}

fn parse_stat(text: &[u8]) -> Option<Stat> {
    // The name in field 2 may contain anything, parentheses too.
    let after_name = text.iter().rposition(|byte| *byte == b')')? + 2;
    let rest = String::from_utf8_lossy(text.get(after_name..)?);
    let mut fields = rest.split_ascii_whitespace();
    Some(Stat {
        state: fields.next()?.chars().next()?,
        parent: fields.next()?.parse().ok()?,
        group: fields.next()?.parse().ok()?,
        session: fields.next()?.parse().ok()?,
        start: fields.nth(15)?.parse().ok()?,
    })
}

/// By how many clock ticks start times are shifted for readers in the caller's time namespace. Without it, a start
/// time that was written in one time namespace would name nobody in another.
pub(crate) fn clock_offset() -> io::Result<i64> {
    const NANOS_PER_TICK: i64 = 10_000_000;
    let inode = |name| fs::metadata(format!("/proc/thread-self/ns/{name}")).map(|file| file.ino());
    let own = match inode("time") {
        Ok(FIRST_TIME_NAMESPACE) => return Ok(0),
        Ok(inode) => inode,
        // Before Linux 5.6.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let offsets = fs::read_to_string("/proc/self/timens_offsets")?;
    let mut boottime = field(&offsets, "boottime").unwrap_or_default().split_ascii_whitespace();
    let mut number = || boottime.next().and_then(|number| number.parse::<i64>().ok());
    match (number(), number()) {
        // The offsets are those of children to come; and half a tick cannot be taken off a whole one.
        (Some(seconds), Some(nanos)) if inode("time_for_children")? == own && nanos % NANOS_PER_TICK == 0 => {
            Ok(seconds * (1_000_000_000 / NANOS_PER_TICK) + nanos / NANOS_PER_TICK)
        }
        _ => Err(io::Error::other("the offset of this time namespace cannot be told in clock ticks")),
    }
}

/// The real and the effective user of a process; `None` if there is none.
pub(crate) fn users(pid: Pid) -> io::Result<Option<[u32; 2]>> {
    hit("look.users")?;
    let Some(status) = of_process(fs::read_to_string(format!("/proc/{pid}/status")))? else {
        return Ok(None);
    };
    let mut numbers = field(&status, "Uid:").unwrap_or_default().split_ascii_whitespace();
    let mut number = || numbers.next().and_then(|number| number.parse().ok());
    match (number(), number()) {
        (Some(real), Some(effective)) => Ok(Some([real, effective])),
        _ => Err(io::Error::other(format!("/proc/{pid}/status is not as Linux writes it"))),
    }
}

/// A digest of the cgroups that a process is in, which everybody may read; 0 if there is no such process.
pub(crate) fn cgroups(pid: Pid) -> io::Result<u64> {
    hit("look.cgroup")?;
    let text = of_process(fs::read(format!("/proc/{pid}/cgroup")))?.unwrap_or_default();
    // FNV-1a: cgroups that meet by chance make somebody doubtful, and nothing else.
    let digest = text.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    Ok(if text.is_empty() { 0 } else { digest })
}

/// The bytes of `/proc/PID/environ`; `None` if there is no such process.
pub(crate) fn environment(pid: Pid) -> io::Result<Option<Vec<u8>>> {
    /// More than a program can be started with; a process can claim that it has terabytes.
    const MOST: u64 = 8 << 20;
    hit("look.environment")?;
    of_process(read_beginning(&format!("/proc/{pid}/environ"), MOST))
}

/// The first words of a process's command line; `None` if there is no such process.
pub(crate) fn words(pid: Pid) -> io::Result<Option<Vec<u8>>> {
    hit("look.command_line")?;
    of_process(read_beginning(&format!("/proc/{pid}/cmdline"), COMMAND_LINE))
}

/// How much is read of a command line.
const COMMAND_LINE: u64 = 4096;

fn read_beginning(path: &str, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What a process is called, for people: its command line, or its name in brackets.
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

/// The numbers of all processes that can be seen at this moment.
pub(crate) fn all_pids() -> io::Result<Vec<Pid>> {
    hit("look.processes")?;
    let mut pids = Vec::new();
    for entry in fs::read_dir("/proc")? {
        pids.extend(entry?.file_name().to_str().and_then(|name| Pid::new(name.parse().ok()?)));
    }
    Ok(pids)
}

/// The PID namespace of a process, for whoever is in the first one; `None` if there is no such process.
pub(crate) fn pid_namespace(pid: Pid) -> io::Result<Option<u64>> {
    match of_process(fs::metadata(format!("/proc/{pid}/ns/pid"))) {
        Ok(file) => Ok(file.map(|file| file.ino())),
        // Some may not be looked into, not even by root; who has one number alone is in our own namespace.
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
    fn the_own_process_is_read_as_it_is() {
        let stat = stat(Pid::current()).unwrap().unwrap();
        assert_eq!(stat.parent, rustix::process::getppid().unwrap().as_raw_nonzero().get());
        assert!(stat.start > 0);
        assert_eq!(users(Pid::current()).unwrap().unwrap()[1], rustix::process::geteuid().as_raw());
    }

    #[test]
    fn a_name_with_parentheses_hides_no_field() {
        let text = b"7 (a) b (c)) S 1 2 3 0 -1 4 5 6 7 8 9 10 11 12 20 0 1 0 4242 99";
        assert_eq!(parse_stat(text), Some(Stat { state: 'S', parent: 1, group: 2, session: 3, start: 4242 }));
    }

    #[test]
    fn nobody_is_nobody_and_not_an_error() {
        let nobody = Pid::new(i32::MAX).unwrap();
        assert!(stat(nobody).unwrap().is_none());
        assert!(environment(nobody).unwrap().is_none());
    }
}
