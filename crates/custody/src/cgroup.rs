//! A run's own cgroup v2: one write to `cgroup.kill` ends everybody in it, whatever they did to escape.
//!
//! Each worker has one of its own below it; host, keeper and shims stay outside.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use crate::RunId;
use crate::ledger::record::MAX_TEXT;
use crate::wait::ready_within;

/// The cgroup of one run.
#[derive(Debug)]
pub(crate) struct Cgroup {
    path: PathBuf,
}

/// The directory below which this process may make cgroups, or why there is none.
pub(crate) fn place() -> Result<PathBuf, String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(|error| error.to_string())?;
    let (root, mount) = mounts.lines().find_map(cgroup2_mount).ok_or("no cgroup v2 is mounted")?;
    let own = fs::read_to_string("/proc/thread-self/cgroup").map_err(|error| error.to_string())?;
    let own =
        own.lines().find_map(|line| line.strip_prefix("0::")).ok_or("this process is in no cgroup v2")?;
    let below = Path::new(own)
        .strip_prefix(&root)
        .map_err(|_| format!("the own cgroup {own} is outside of what is mounted at {}", mount.display()))?;
    Ok(mount.join(below))
}

/// Root and mount point, if the line of mountinfo is one of a cgroup v2.
fn cgroup2_mount(line: &str) -> Option<(PathBuf, PathBuf)> {
    let (before, after) = line.split_once(" - ")?;
    let mut fields = before.split(' ').skip(3);
    let (root, mount) = (fields.next()?, fields.next()?);
    after.starts_with("cgroup2 ").then(|| (PathBuf::from(root), PathBuf::from(mount)))
}

impl Cgroup {
    /// Makes the run's cgroup and makes sure that it can kill.
    pub(crate) fn create(run: RunId) -> Result<Self, String> {
        let path = place()?.join(Self::name(run));
        if path.as_os_str().len() > MAX_TEXT {
            return Err(format!("the path {} is too long for the ledger", path.display()));
        }
        let cgroup = Self { path };
        cgroup.make().map_err(|error| format!("cannot make {}: {error}", cgroup.path.display()))?;
        // Opened but not written: a cgroup that was killed once kills whoever is cloned into it from
        // outside, see docs/design/custody.md.
        let usable = cgroup.takes_processes().and_then(|()| match cgroup.kill_file() {
            Ok(_) => Ok(()),
            Err(error) => Err(format!("{}/cgroup.kill: {error} (Linux 5.14 has it)", cgroup.path.display())),
        });
        if usable.is_err() {
            cgroup.remove();
        }
        usable.map(|()| cgroup)
    }

    /// Below a threaded cgroup one can be made, but no process be put into it.
    fn takes_processes(&self) -> Result<(), String> {
        match fs::read_to_string(self.path.join("cgroup.type")) {
            Ok(kind) if kind.trim() != "domain" => {
                let below = self.path.parent().unwrap_or(&self.path).display();
                Err(format!("a cgroup below {below} takes no process: it is {}", kind.trim()))
            }
            // Before Linux 4.14 there is one kind alone.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Makes the directory anew if a sweep has removed it.
    pub(crate) fn make(&self) -> io::Result<()> {
        match fs::create_dir(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }

    /// The cgroup that a ledger names, if it can be that run's.
    pub(crate) fn recorded(path: &[u8], run: RunId) -> Option<Self> {
        use std::os::unix::ffi::OsStrExt;
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(path));
        let named = path.file_name().is_some_and(|name| name == Self::name(run).as_str());
        (named && path.join("cgroup.procs").exists()).then_some(Self { path })
    }

    fn name(run: RunId) -> String {
        format!("snakepit-{run}")
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn open(&self) -> io::Result<OwnedFd> {
        self.make()?;
        Ok(fs::File::open(&self.path)?.into())
    }

    /// Who is in it, or in one below it.
    pub(crate) fn members(&self) -> Vec<crate::Pid> {
        let mut members = Vec::new();
        for path in self.tree() {
            let text = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
            members.extend(text.lines().filter_map(|line| crate::Pid::new(line.parse().ok()?)));
        }
        members
    }

    /// It and those below it, each after its parent: the keeper makes one per worker, and a worker may make more.
    fn tree(&self) -> Vec<PathBuf> {
        /// However many a worker has made.
        const MOST: usize = 10_000;
        let mut found = vec![self.path.clone()];
        let mut next = 0;
        while next < found.len() && found.len() < MOST {
            let entries = fs::read_dir(&found[next]).into_iter().flatten().flatten();
            let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            found.extend(below.map(|entry| entry.path()));
            next += 1;
        }
        found
    }

    /// Kills everybody in it, at once.
    pub(crate) fn kill(&self) -> io::Result<()> {
        self.kill_file()?.write_all(b"1")
    }

    fn kill_file(&self) -> io::Result<fs::File> {
        fs::OpenOptions::new().write(true).open(self.path.join("cgroup.kill"))
    }

    /// Waits until nobody is in it.
    pub(crate) fn wait_empty(&self, timeout: Duration) -> bool {
        let Ok(mut events) = fs::File::open(self.path.join("cgroup.events")) else { return true };
        let deadline = Instant::now() + timeout;
        loop {
            let mut text = String::new();
            // Reading arms the next notice.
            if io::Seek::rewind(&mut events).is_err() || events.read_to_string(&mut text).is_err() {
                return true;
            }
            if text.lines().any(|line| line == "populated 0") {
                return true;
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()) else { return false };
            ready_within(&events, PollFlags::PRI, left);
        }
    }

    pub(crate) fn remove(&self) {
        // Refused while somebody is in it; the next reaper tries again.
        for path in self.tree().iter().rev() {
            let _ = fs::remove_dir(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_is_found_among_others_and_a_bind_of_a_subtree_is_understood() {
        let v1 = "30 24 0:26 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory";
        let v2 = "31 24 0:27 /sub /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";
        assert_eq!(cgroup2_mount(v1), None);
        assert_eq!(cgroup2_mount(v2), Some(("/sub".into(), "/sys/fs/cgroup/unified".into())));
    }

    #[test]
    fn a_recorded_path_that_is_not_the_runs_own_is_not_used() {
        assert!(Cgroup::recorded(b"/sys/fs/cgroup/unified", RunId::new()).is_none());
    }
}
