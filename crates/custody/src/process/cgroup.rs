//! The cgroup v2 of a run: one write to `cgroup.kill` ends all its processes, whatever they did to escape.
//!
//! Each worker has its own cgroup below the run's. Host, keeper and shims stay outside.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use crate::RunId;
use crate::failpoint::hit;
use crate::ledger::record::MAX_TEXT;
use crate::process::wait::ready_within;
use crate::state::StateDir;

/// The prefix of the name of a run's cgroup.
const PREFIX: &str = "snakepit-";
/// Separates the run's id from the digest of its state directory.
const STATE_MARK: &str = ".";

/// Returns the run of a cgroup with this name.
fn run_of(name: &str) -> Option<RunId> {
    let name = name.strip_prefix(PREFIX)?;
    // Older versions did not append the state directory.
    name.split_once(STATE_MARK).map_or(name, |(run, _)| run).parse().ok()
}

/// Returns `None` for a cgroup that was removed meanwhile, because it contains no process.
fn unless_gone<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
        read => read.map(Some),
    }
}

/// The cgroup of one run.
#[derive(Debug)]
pub(crate) struct Cgroup {
    path: PathBuf,
}

/// Returns the cgroup of this process, below which it may create others, or the reason why there is none.
pub(crate) fn place() -> Result<PathBuf, String> {
    let read = |path: &str| fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"));
    place_in(&read("/proc/self/mountinfo")?, &read("/proc/thread-self/cgroup")?)
}

/// Returns the cgroup that these files of `/proc` name.
pub(crate) fn place_in(mounts: &str, own: &str) -> Result<PathBuf, String> {
    let (root, mount) = mounts.lines().find_map(cgroup2_mount).ok_or("no cgroup v2 is mounted")?;
    let own =
        own.lines().find_map(|line| line.strip_prefix("0::")).ok_or("this process is in no cgroup v2")?;
    let below = Path::new(own)
        .strip_prefix(&root)
        .map_err(|_| format!("the cgroup {own} of this process is not visible below {}", mount.display()))?;
    Ok(mount.join(below))
}

/// Returns root and mount point if this line of mountinfo describes a cgroup v2.
fn cgroup2_mount(line: &str) -> Option<(PathBuf, PathBuf)> {
    let (before, after) = line.split_once(" - ")?;
    let mut fields = before.split(' ').skip(3);
    let (root, mount) = (fields.next()?, fields.next()?);
    after.starts_with("cgroup2 ").then(|| (PathBuf::from(root), PathBuf::from(mount)))
}

impl Cgroup {
    /// Creates the run's cgroup and checks that it can kill.
    pub(crate) fn create(run: RunId, state: u64) -> Result<Self, String> {
        Self::create_below(&place()?, run, state)
    }

    /// Creates the run's cgroup below another one.
    pub(crate) fn create_below(place: &Path, run: RunId, state: u64) -> Result<Self, String> {
        let path = place.join(format!("{}{}{state:016x}", Self::name(run), STATE_MARK));
        if path.as_os_str().len() > MAX_TEXT {
            return Err(format!("the path {} is too long for the ledger", path.display()));
        }
        let cgroup = Self { path };
        cgroup.make().map_err(|error| format!("cannot create {}: {error}", cgroup.path.display()))?;
        // The file is opened but not written: a cgroup that was killed once kills every process that is cloned into it
        // from outside, see docs/design/2026-11-15-custody.md.
        let usable = cgroup.takes_processes().and_then(|()| match cgroup.kill_file() {
            Ok(_) => Ok(()),
            Err(error) => Err(format!(
                "cannot open {}/cgroup.kill, which Linux 5.14 and newer have: {error}",
                cgroup.path.display()
            )),
        });
        if usable.is_err() {
            cgroup.remove();
        }
        usable.map(|()| cgroup)
    }

    /// Checks the type of the cgroup. A cgroup below a threaded one can be created, but accepts no processes.
    pub(crate) fn takes_processes(&self) -> Result<(), String> {
        match fs::read_to_string(self.path.join("cgroup.type")) {
            Ok(kind) if kind.trim() != "domain" => {
                let below = self.path.parent().unwrap_or(&self.path).display();
                Err(format!("cgroups below {below} accept no processes: their type is {}", kind.trim()))
            }
            // Before Linux 4.14, all cgroups have the same type.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Creates the directory, unless it exists.
    pub(crate) fn make(&self) -> io::Result<()> {
        match fs::create_dir(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns the cgroup that a ledger names, if it exists and has the run's name. An error means that it is not
    /// visible to the caller.
    pub(crate) fn recorded(path: &[u8], run: RunId) -> io::Result<Option<Self>> {
        use std::os::unix::ffi::OsStrExt;
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(path));
        if path.file_name().is_none_or(|name| run_of(&name.to_string_lossy()) != Some(run)) {
            return Ok(None);
        }
        if unless_gone(fs::metadata(path.join("cgroup.procs")))?.is_some() {
            return Ok(Some(Self { path }));
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        if mounts.lines().filter_map(cgroup2_mount).any(|(_, mount)| path.starts_with(mount)) {
            return Ok(None);
        }
        Err(io::Error::other(format!(
            "cannot see its cgroup {}: no cgroup v2 is mounted there",
            path.display()
        )))
    }

    /// Returns the cgroups below the caller's cgroup that belong to runs of a state directory.
    pub(crate) fn all_of(state: &StateDir) -> io::Result<Vec<(RunId, Self)>> {
        let mut found = Vec::new();
        let Ok(place) = place() else { return Ok(found) };
        let mark = format!("{STATE_MARK}{:016x}", state.digest()?);
        for entry in unless_gone(fs::read_dir(place))?.into_iter().flatten() {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).filter(|name| name.ends_with(&mark));
            if let Some(run) = name.and_then(run_of) {
                found.push((run, Self { path }));
            }
        }
        Ok(found)
    }

    fn name(run: RunId) -> String {
        format!("{PREFIX}{run}")
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn open(&self) -> io::Result<OwnedFd> {
        self.make()?;
        Ok(fs::File::open(&self.path)?.into())
    }

    /// Returns the processes in this cgroup and those below it that have a pid here. A process in another PID namespace
    /// may have none. [`Cgroup::end`] reaches those processes, too.
    pub(crate) fn members(&self) -> io::Result<Vec<crate::Pid>> {
        hit("look.cgroup")?;
        let mut members = Vec::new();
        for path in self.tree()? {
            let text = match fs::read_to_string(path.join("cgroup.procs")) {
                // This is a threaded cgroup. Its processes are listed in the cgroup above.
                Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => continue,
                read => unless_gone(read)?.unwrap_or_default(),
            };
            members.extend(text.lines().filter_map(|line| crate::Pid::new(line.parse().ok()?)));
        }
        Ok(members)
    }

    /// Returns this cgroup and those below it, parents first. The keeper creates one per worker, and workers may create
    /// more.
    fn tree(&self) -> io::Result<Vec<PathBuf>> {
        /// The most cgroups that are listed, however many a worker has created.
        const MOST: usize = 10_000;
        let mut found = vec![self.path.clone()];
        let mut next = 0;
        while next < found.len() && found.len() < MOST {
            for entry in unless_gone(fs::read_dir(&found[next]))?.into_iter().flatten() {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    found.push(entry.path());
                }
            }
            next += 1;
        }
        Ok(found)
    }

    /// Kills all processes in this cgroup at once.
    pub(crate) fn kill(&self) -> io::Result<()> {
        self.kill_file()?.write_all(b"1")
    }

    fn kill_file(&self) -> io::Result<fs::File> {
        fs::OpenOptions::new().write(true).open(self.path.join("cgroup.kill"))
    }

    /// Kills the remaining processes and removes the cgroup. An error says why the cgroup still exists.
    pub(crate) fn end(&self, timeout: Duration) -> io::Result<()> {
        let Some(mut events) = unless_gone(fs::File::open(self.path.join("cgroup.events")))? else {
            return Ok(());
        };
        let deadline = Instant::now() + timeout;
        loop {
            let mut text = String::new();
            // Reading arms the next notification.
            io::Seek::rewind(&mut events)?;
            if unless_gone(events.read_to_string(&mut text))?.is_none()
                || text.lines().any(|line| line == "populated 0")
            {
                break;
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "a process in it does not end: it may be in uninterruptible sleep or frozen",
                ));
            };
            self.kill()?;
            ready_within(&events, PollFlags::PRI, left);
        }
        self.remove();
        match unless_gone(fs::metadata(&self.path))? {
            Some(_) => Err(io::Error::other("it is empty, but cannot be removed")),
            None => Ok(()),
        }
    }

    pub(crate) fn remove(&self) {
        // This fails while a process is in the cgroup. The next reaper tries again.
        for path in self.tree().unwrap_or_else(|_| vec![self.path.clone()]).iter().rev() {
            let _ = fs::remove_dir(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cgroup2_mount_is_found_even_if_it_shows_a_subtree() {
        let v1 = "30 24 0:26 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory";
        let v2 = "31 24 0:27 /sub /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";
        assert_eq!(cgroup2_mount(v1), None);
        assert_eq!(cgroup2_mount(v2), Some(("/sub".into(), "/sys/fs/cgroup/unified".into())));
    }

    #[test]
    fn a_recorded_path_that_is_not_the_runs_own_is_not_used() {
        assert!(Cgroup::recorded(b"/sys/fs/cgroup/unified", RunId::new()).unwrap().is_none());
    }

    #[test]
    fn a_cgroup_that_cannot_be_seen_from_here_is_not_taken_for_gone() {
        let run = RunId::new();
        let elsewhere = format!("/nowhere/{}", Cgroup::name(run));
        assert!(Cgroup::recorded(elsewhere.as_bytes(), run).is_err());
    }
}
