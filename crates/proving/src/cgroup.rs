//! Control groups for tests: created below the caller's own, removed when dropped.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::deadline::recheck;
use crate::{Deadline, random};

/// A control group of a test.
#[derive(Debug)]
pub struct TestCgroup {
    dir: PathBuf,
}

impl TestCgroup {
    /// Creates a group below the caller's own in the hierarchy with this controller: `memory`, `freezer`, or the empty
    /// name for version 2. Returns `None` if this machine has no such group that we may write.
    pub fn below_ours(controller: &str) -> Option<Self> {
        let dir = own(controller)?.join(format!("proving-{}", random::word()));
        fs::create_dir(&dir).ok()?;
        Some(Self { dir })
    }

    /// Creates a memory group with a limit, in version 1 or 2, whichever has the controller.
    pub fn with_memory_limit(bytes: u64) -> Option<Self> {
        if let Some(group) = Self::below_ours("memory") {
            group.write("memory.limit_in_bytes", &bytes.to_string());
            return Some(group);
        }
        let ours = own("")?;
        let controllers = fs::read_to_string(ours.join("cgroup.controllers")).ok()?;
        if !controllers.split_ascii_whitespace().any(|name| name == "memory") {
            return None;
        }
        fs::write(ours.join("cgroup.subtree_control"), "+memory").ok()?;
        let group = Self::below_ours("")?;
        group.write("memory.max", &bytes.to_string());
        Some(group)
    }

    /// Returns the directory of the group.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes one of the group's files.
    pub fn write(&self, file: &str, text: &str) {
        let path = self.dir.join(file);
        fs::write(&path, text).unwrap_or_else(|error| panic!("{text} into {}: {error}", path.display()));
    }

    /// Reads one of the group's files.
    pub fn read(&self, file: &str) -> String {
        let path = self.dir.join(file);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Delegates the group to a user, as a service manager would.
    pub fn delegate_to(&self, user: u32) {
        let files = ["", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"];
        for path in files.map(|file| self.dir.join(file)) {
            chown(&path, Some(user), Some(user))
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
    }

    /// Moves a process into the group.
    pub fn take(&self, pid: i32) {
        self.write("cgroup.procs", &pid.to_string());
    }
}

impl Drop for TestCgroup {
    fn drop(&mut self) {
        // A frozen group cannot be emptied. A group that is not frozen ignores this.
        let _ = fs::write(self.dir.join("freezer.state"), "THAWED");
        let _ = fs::write(self.dir.join("cgroup.freeze"), "0");
        if std::thread::panicking() {
            // The processes in it belong to a failing case, and end with it or after it.
            try_remove_tree(&self.dir);
        } else {
            remove_tree(&self.dir);
        }
    }
}

/// The time in which the processes of a failed case must end.
const LAST_CHANCE: Duration = Duration::from_secs(2);

/// Removes a group and the groups below it, once they are empty.
pub fn remove_tree(dir: &Path) {
    // The kernel keeps a group busy for a moment after its last process has ended.
    recheck(Deadline::patient(), "the removal of a cgroup", || is_removed(dir).then_some(()));
}

/// Like [`remove_tree`], but ignores failures.
pub fn try_remove_tree(dir: &Path) {
    let deadline = Deadline::after(LAST_CHANCE);
    recheck(Deadline::patient(), "the deadline", || {
        (is_removed(dir) || deadline.left().is_none()).then_some(())
    });
}

fn is_removed(dir: &Path) -> bool {
    let Ok(entries) = fs::read_dir(dir) else { return true };
    for below in entries.filter_map(Result::ok).map(|entry| entry.path()).filter(|path| path.is_dir()) {
        is_removed(&below);
    }
    fs::remove_dir(dir).is_ok() || !dir.exists()
}

/// Returns the caller's own group in a hierarchy.
fn own(controller: &str) -> Option<PathBuf> {
    let mount = mount_point(controller)?;
    let table = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = table.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, names, path) = (parts.next()?, parts.next()?, parts.next()?);
        let here = if controller.is_empty() {
            names.is_empty()
        } else {
            names.split(',').any(|name| name == controller)
        };
        here.then_some(path)
    })?;
    Some(mount.join(path.trim_start_matches('/')))
}

fn mount_point(controller: &str) -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    mounts.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        let (at, kind, options) = (fields.get(1)?, fields.get(2)?, fields.get(3)?);
        let fits = if controller.is_empty() {
            *kind == "cgroup2"
        } else {
            *kind == "cgroup" && options.split(',').any(|option| option == controller)
        };
        fits.then(|| PathBuf::from(at))
    })
}
