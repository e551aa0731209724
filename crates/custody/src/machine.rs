//! What is true of this machine and this PID namespace, and what `/proc` says of a process.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use crate::Pid;

/// The place in which a pid means something: one boot of one machine, one PID namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) boot: [u8; 16],
    pub(crate) pidns: u64,
}

impl Place {
    pub(crate) fn here() -> io::Result<Self> {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let boot = uuid::Uuid::try_parse(text.trim()).map_err(io::Error::other)?.into_bytes();
        // Of the thread: the process's own entry is empty once its main thread has ended.
        let pidns = fs::metadata("/proc/thread-self/ns/pid")?.ino();
        Ok(Self { boot, pidns })
    }
}

/// The fields of `/proc/PID/stat` that custody needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stat {
    pub(crate) state: char,
    pub(crate) start: u64,
}

pub(crate) fn stat(pid: Pid) -> Option<Stat> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name in field 2 may contain anything, parentheses too.
    let after_name = text.iter().rposition(|byte| *byte == b')')? + 2;
    let rest = String::from_utf8_lossy(text.get(after_name..)?).into_owned();
    let mut fields = rest.split_ascii_whitespace();
    Some(Stat { state: fields.next()?.chars().next()?, start: fields.nth(18)?.parse().ok()? })
}

/// What a process is called, for people: its command line, or its name in brackets.
pub(crate) fn command_line(pid: Pid) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> =
        line.split(|byte| *byte == 0).filter(|word| !word.is_empty()).map(String::from_utf8_lossy).collect();
    if words.is_empty() {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        return format!("[{}]", name.trim());
    }
    let text: String = words.join(" ").chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().count() > 120 { text.chars().take(119).chain(['…']).collect() } else { text }
}

/// The machine's processes at this moment.
pub(crate) fn all_pids() -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| Pid::new(entry.file_name().to_str()?.parse().ok()?)).collect()
}
