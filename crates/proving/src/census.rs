//! A census of processes from `/proc`, independent of what custody reports.

use std::fs;
use std::path::Path;

/// A process that the census found.
#[derive(Clone, Debug)]
pub struct CensusEntry {
    /// The pid of the process.
    pub pid: i32,
    /// The pid of its parent.
    pub parent: i32,
    /// Its process group.
    pub pgid: i32,
    /// The kernel's letter for its state.
    pub state: char,
    /// Its short name.
    pub comm: String,
    /// Its command line, separated by spaces.
    pub cmdline: String,
    /// The run whose marker is in its environment.
    pub run: Option<String>,
}

impl CensusEntry {
    /// Reads one process. Returns `None` if the process has ended.
    pub fn read(pid: i32) -> Option<Self> {
        let dir = Path::new("/proc").join(pid.to_string());
        let stat = fs::read_to_string(dir.join("stat")).ok()?;
        let (head, tail) = stat.rsplit_once(')')?;
        let comm = head.split_once('(')?.1.to_owned();
        let mut fields = tail.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        let pgid = fields.next()?.parse().ok()?;
        let cmdline = fs::read(dir.join("cmdline")).unwrap_or_default();
        let cmdline = String::from_utf8_lossy(&cmdline).replace('\0', " ").trim_end().to_owned();
        let run = fs::read(dir.join("environ")).ok().and_then(|environ| marker(&environ));
        Some(Self { pid, parent, pgid, state, comm, cmdline, run })
    }

    /// Reports whether the process is the keeper or a shim.
    pub fn is_custody(&self) -> bool {
        matches!(self.comm.as_str(), "snakepit-keeper" | "snakepit-shim")
    }

    /// Reports whether the process has ended and only waits for its parent.
    pub fn is_zombie(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

fn marker(environ: &[u8]) -> Option<String> {
    let value = environ.split(|&b| b == 0).find_map(|entry| entry.strip_prefix(b"SNAKEPIT_RUN_ID="))?;
    Some(String::from_utf8_lossy(value).into_owned())
}

/// Returns the pids of all processes.
pub fn pids() -> Vec<i32> {
    let entries = fs::read_dir("/proc").expect("/proc");
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// Returns the processes that have the tag mapped or open.
pub fn tagged_processes(tag: &Path) -> Vec<CensusEntry> {
    let name = tag.file_name().and_then(|name| name.to_str()).expect("a tag has a name");
    find(|dir| {
        let maps = fs::read(dir.join("maps")).unwrap_or_default();
        contains(&maps, name.as_bytes()) || has_open(dir, name)
    })
}

/// Returns the processes that mention one of the words in their command line, environment, directory, open files or
/// mappings, except the calling process.
pub fn mentioning(words: &[String]) -> Vec<CensusEntry> {
    find(|dir| {
        let said = |file: &str| {
            let bytes = fs::read(dir.join(file)).unwrap_or_default();
            words.iter().any(|word| contains(&bytes, word.as_bytes()))
        };
        said("cmdline") || said("environ") || said("maps") || words.iter().any(|word| has_open(dir, word))
    })
}

/// Returns the children of a process, including zombies.
pub fn children(parent: i32) -> Vec<CensusEntry> {
    pids().into_iter().filter_map(CensusEntry::read).filter(|found| found.parent == parent).collect()
}

/// Returns the pid of the process that has the pid `inner` in the PID namespace of `parent`'s children. Returns `None`
/// if no process directly in that namespace has it.
pub fn outer(parent: i32, inner: i32) -> Option<i32> {
    let namespace = |pid: &str, name: &str| fs::read_link(format!("/proc/{pid}/ns/{name}")).ok();
    let theirs = namespace(&parent.to_string(), "pid_for_children");
    if theirs.is_none() || theirs == namespace("self", "pid") {
        return Some(inner);
    }
    pids().into_iter().find(|pid| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        let innermost = numbers.and_then(|numbers| numbers.split_ascii_whitespace().last()?.parse().ok());
        innermost == Some(inner) && namespace(&pid.to_string(), "pid") == theirs
    })
}

/// Returns the number of processes that this machine has started since it booted.
pub fn births() -> u64 {
    let stat = fs::read_to_string("/proc/stat").expect("/proc/stat");
    let count = stat.lines().find_map(|line| line.strip_prefix("processes "));
    count.and_then(|count| count.trim().parse().ok()).expect("the count of processes")
}

/// Returns the number of descriptors that a process has open.
pub fn open_descriptors(pid: i32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

fn find(matches: impl Fn(&Path) -> bool) -> Vec<CensusEntry> {
    let me = std::process::id().cast_signed();
    let others = pids().into_iter().filter(|&pid| pid != me);
    others
        .filter(|pid| matches(&Path::new("/proc").join(pid.to_string())))
        .filter_map(CensusEntry::read)
        .filter(|found| !found.is_zombie())
        .collect()
}

fn has_open(dir: &Path, word: &str) -> bool {
    let Ok(entries) = fs::read_dir(dir.join("fd")) else { return false };
    let mut links = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links.any(|link| link.to_string_lossy().contains(word))
}

fn contains(hay: &[u8], needle: &[u8]) -> bool {
    hay.windows(needle.len()).any(|window| window == needle)
}
