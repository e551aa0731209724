//! Whether the kernel killed a worker for lack of memory: yes, no or unknown.
//!
//! There are two sources. The kernel log names each process that was killed for lack of memory. It is used if it is
//! readable (mostly by root) and if its pids are ours: they are those of the machine, so they mean nothing inside a pid
//! namespace. If it does not name the worker, it is trusted only if no record was missed. Otherwise the memory cgroup
//! decides, which counts kills. A count that has not risen means no. A kill that no earlier death has used up means
//! yes, and this death uses it up. In this case, a killed child of the worker can be mistaken for the worker.
//!
//! | kernel log | count of the cgroup | verdict |
//! |---|---|---|
//! | names the worker | | yes |
//! | complete, does not name it | | no |
//! | unknown | has not risen | no |
//! | unknown | has risen | yes |
//! | unknown | unknown | unknown |

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::OFlags;
use rustix::io::Errno;

use snakepit_custody::Run;

use crate::oom_verdict::OomVerdict;

/// How many processes named by the log are remembered, including those of other programs.
const REMEMBERED: usize = 256;

/// The longest record that `/dev/kmsg` returns.
const LONGEST_RECORD: usize = 8192;

/// The inode number of the first pid namespace on Linux (`PROC_PID_INIT_INO`).
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// The watch of an engine, whose workers are all in one cgroup. Empty if the engine has no processes.
#[derive(Clone, Debug, Default)]
pub struct OomDetector(Option<Arc<Mutex<OomWatch>>>);

impl OomDetector {
    /// Starts to watch the workers of a run. Reads files.
    pub fn of(run: &Run) -> Self {
        Self(Some(Arc::new(Mutex::new(OomWatch::new(run.cgroup())))))
    }

    /// Reads new records of the kernel log, a ring buffer: records are lost if it is read too rarely. Reads files.
    pub fn catch_up(&self) {
        if let Some(watch) = &self.0 {
            watch.lock().unwrap_or_else(PoisonError::into_inner).catch_up();
        }
    }

    /// Returns the verdict on a process that died of a SIGKILL that did not come from the engine. Reads files, and must be
    /// called once for each death.
    pub fn verdict(&self, pid: i32) -> OomVerdict {
        match &self.0 {
            Some(watch) => watch.lock().unwrap_or_else(PoisonError::into_inner).verdict(pid),
            None => OomVerdict::Unknown,
        }
    }
}

/// Watches for workers that the kernel kills. One watch serves all workers of a cgroup.
#[derive(Debug)]
pub(crate) struct OomWatch {
    count: Option<Count>,
    log: Option<Log>,
}

impl OomWatch {
    /// Starts to watch. `cgroup` is the directory of the workers' cgroup. If it is missing or does not count kills, the
    /// nearest ancestor that does is used, and finally our own cgroup.
    pub(crate) fn new(cgroup: Option<&Path>) -> Self {
        let above = cgroup.into_iter().flat_map(Path::ancestors).map(Path::to_owned);
        let count = above.chain(own_cgroups()).find_map(|dir| Count::of(&dir));
        Self { count, log: is_first_pid_namespace().then(Log::open).flatten() }
    }

    /// Returns a watch for the case that the kernel log is not readable.
    #[cfg(test)]
    pub(super) fn without_log(self) -> Self {
        Self { log: None, ..self }
    }

    /// Reads new records of the kernel log. The log is a ring buffer: records are lost if it is read too rarely.
    pub(crate) fn catch_up(&mut self) {
        if let Some(log) = &mut self.log {
            log.catch_up();
        }
    }

    /// Returns the verdict on a process that died of a SIGKILL that did not come from the engine.
    pub(crate) fn verdict(&mut self, pid: i32) -> OomVerdict {
        self.catch_up();
        let named = self.log.as_mut().and_then(|log| log.names(pid));
        match (named, &mut self.count) {
            (Some(true), count) => {
                count.as_mut().map(Count::use_up);
                OomVerdict::Yes
            }
            (Some(false), _) => OomVerdict::No,
            (None, Some(count)) => count.use_up(),
            (None, None) => OomVerdict::Unknown,
        }
    }
}

/// A file in which a cgroup counts its kills.
#[derive(Debug)]
struct Count {
    file: PathBuf,
    explained: u64,
}

impl Count {
    /// Finds the file, of cgroup version 2 or version 1.
    fn of(dir: &Path) -> Option<Self> {
        ["memory.events", "memory.oom_control"].iter().find_map(|name| {
            let file = dir.join(name);
            let explained = kills(&fs::read_to_string(&file).ok()?)?;
            Some(Self { file, explained })
        })
    }

    fn use_up(&mut self) -> OomVerdict {
        match fs::read_to_string(&self.file).ok().as_deref().and_then(kills) {
            Some(now) if now > self.explained => {
                self.explained += 1;
                OomVerdict::Yes
            }
            Some(_) => OomVerdict::No,
            None => OomVerdict::Unknown,
        }
    }
}

/// Returns the number in the line `oom_kill N`, which both versions have.
fn kills(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// Returns the cgroups of this process that may count memory: version 1's memory hierarchy, then version 2, with their
/// ancestors.
fn own_cgroups() -> Vec<PathBuf> {
    let read = |file| fs::read_to_string(file).unwrap_or_default();
    cgroups(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"))
}

fn cgroups(own: &str, mounts: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let kind = if controllers.is_empty() { "cgroup2" } else { "cgroup" };
        if kind == "cgroup" && !controllers.split(',').any(|it| it == "memory") {
            continue;
        }
        let Some((root, mount)) = mounts.lines().find_map(|line| mount_of(line, kind)) else { continue };
        // The path may be outside of what is mounted here, as in some containers. Then the mount's own root is the
        // nearest.
        let below = Path::new(path).strip_prefix(root).unwrap_or(Path::new(""));
        let dir = Path::new(mount).join(below);
        found.extend(dir.ancestors().take_while(|dir| dir.starts_with(mount)).map(Path::to_owned));
    }
    found
}

/// Returns root and mount point if a line of mountinfo is for version 2, or for version 1's memory hierarchy.
fn mount_of<'a>(line: &'a str, kind: &str) -> Option<(&'a str, &'a str)> {
    let (before, after) = line.split_once(" - ")?;
    let mut fields = before.split(' ').skip(3);
    let (root, mount) = (fields.next()?, fields.next()?);
    let mut after = after.split(' ');
    let fits = after.next()? == kind;
    let options = after.nth(1)?;
    (fits && (kind == "cgroup2" || options.split(',').any(|it| it == "memory"))).then_some((root, mount))
}

fn is_first_pid_namespace() -> bool {
    fs::metadata("/proc/self/ns/pid").is_ok_and(|it| it.ino() == FIRST_PID_NAMESPACE)
}

/// The kernel log since it was opened.
#[derive(Debug)]
struct Log {
    file: File,
    named: VecDeque<i32>,
    is_complete: bool,
}

impl Log {
    fn open() -> Option<Self> {
        let nonblock = OFlags::NONBLOCK.bits() as i32;
        let mut file = OpenOptions::new().read(true).custom_flags(nonblock).open("/dev/kmsg").ok()?;
        file.seek(SeekFrom::End(0)).ok()?;
        Some(Self { file, named: VecDeque::new(), is_complete: true })
    }

    fn catch_up(&mut self) {
        let mut record = [0; LONGEST_RECORD];
        loop {
            match self.file.read(&mut record) {
                Ok(0) => return,
                Ok(length) => {
                    if let Some(pid) = killed(&String::from_utf8_lossy(&record[..length])) {
                        self.note(pid);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A record was overwritten before it was read, so the process that it named stays unknown.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::PIPE) => self.is_complete = false,
                Err(_) => {
                    self.is_complete = false;
                    return;
                }
            }
        }
    }

    fn note(&mut self, pid: i32) {
        if self.named.len() == REMEMBERED {
            self.named.pop_front();
            self.is_complete = false;
        }
        self.named.push_back(pid);
    }

    /// Reports whether the log named a process, or returns `None` if it is incomplete and did not. Each record counts
    /// once, because pids are reused.
    fn names(&mut self, pid: i32) -> Option<bool> {
        let at = self.named.iter().position(|named| *named == pid);
        match at.and_then(|at| self.named.remove(at)) {
            Some(_) => Some(true),
            None => self.is_complete.then_some(false),
        }
    }
}

/// Returns the pid that a record reports as killed for lack of memory.
fn killed(record: &str) -> Option<i32> {
    // `6,1234,5678,-;Memory cgroup out of memory: Killed process 42 (python3) total-vm:…`. A process that may kill us
    // may also write into the log, so the facility must be that of the kernel.
    let (head, message) = record.split_once(';')?;
    let priority: u32 = head.split(',').next()?.parse().ok()?;
    let is_kernel = priority >> 3 == 0;
    let rest = message.split_once("Killed process ").filter(|_| is_kernel)?.1;
    let is_oom = message.starts_with("Out of memory") || message.starts_with("Memory cgroup out of memory");
    rest.split(' ').next()?.trim_end_matches(',').parse().ok().filter(|_| is_oom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_that_the_kernel_killed_is_read_only_from_oom_lines_of_the_kernel() {
        let memcg = "3,1021,21740301958,-;Memory cgroup out of memory: Killed process 29951 (proving-hostile) \
                     total-vm:99096kB, anon-rss:95104kB, file-rss:2036kB, shmem-rss:0kB, UID:0 pgtables:232kB \
                     oom_score_adj:0\n";
        let machine = "3,7,1,-;Out of memory: Killed process 42 (a (b) c) total-vm:1kB\n";
        let older = "3,7,1,-;Out of memory: Killed process 42, UID 0, (python3) total-vm:1kB\n";
        assert_eq!(killed(memcg), Some(29951));
        assert_eq!(killed(machine), Some(42));
        assert_eq!(killed(older), Some(42));
        let user = machine.replacen('3', "11", 1);
        let others =
            ["6,1,1,-;usb 1-1: new device\n", "3,7,1,-;Killed process 42 (x)\n", "", ";", user.as_str()];
        assert!(others.iter().all(|record| killed(record).is_none()));
    }

    #[test]
    fn oom_kills_are_read_from_both_versions_of_cgroups() {
        let v2 = "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n";
        let v1 = "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n";
        assert_eq!(kills(v2), Some(2));
        assert_eq!(kills(v1), Some(7));
        assert_eq!(kills("oom_kill_disable 0\nunder_oom 0\n"), None);
    }

    #[test]
    fn each_oom_kill_explains_one_death_also_if_an_ancestor_cgroup_counts_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let events = dir.path().join("memory.events");
        fs::write(&events, "oom 0\noom_kill 3\n").expect("events");
        let below = dir.path().join("run/worker");
        fs::create_dir_all(&below).expect("a group below");
        let mut watch = OomWatch::new(Some(&below)).without_log();
        assert_eq!(watch.verdict(1), OomVerdict::No);
        fs::write(&events, "oom 1\noom_kill 4\n").expect("events");
        assert_eq!(watch.verdict(1), OomVerdict::Yes);
        assert_eq!(watch.verdict(2), OomVerdict::No);
        fs::remove_file(&events).expect("removed");
        assert_eq!(watch.verdict(3), OomVerdict::Unknown);
        assert_eq!(OomWatch { log: None, count: None }.verdict(4), OomVerdict::Unknown);
    }

    #[test]
    fn the_own_cgroups_and_their_ancestors_are_found_in_both_versions() {
        let own = "9:name=systemd:/\n4:memory:/box/one\n1:cpu:/\n0::/slice/host\n";
        let mounts = "30 24 0:26 /box /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      29 24 0:25 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      31 24 0:27 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n";
        let found = cgroups(own, mounts);
        let expected = [
            "/sys/fs/cgroup/memory/one",
            "/sys/fs/cgroup/memory",
            "/sys/fs/cgroup/unified/slice/host",
            "/sys/fs/cgroup/unified/slice",
            "/sys/fs/cgroup/unified",
        ];
        assert_eq!(found, expected.map(PathBuf::from));
        assert!(cgroups("", "").is_empty());
    }

    #[test]
    fn an_incomplete_kernel_log_rules_nothing_out() {
        let file = File::open("/dev/null").expect("nothing");
        let mut log = Log { file, named: VecDeque::from([7]), is_complete: true };
        assert_eq!((log.names(7), log.names(7)), (Some(true), Some(false)), "each naming counts once");
        (0..=REMEMBERED as i32).for_each(|pid| log.note(pid));
        assert_eq!((log.names(0), log.names(1)), (None, Some(true)));
    }
}
