//! Which users can change a directory: whether it belongs to root or to the current user, and whether its group has
//! other members.
//!
//! Knows users, groups and user namespaces, and nothing about the way to a directory.

use std::os::fd::AsFd;
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::fs::Stat;

use super::DirError;

const ROOT: u32 = 0;

/// All users may write to the directory.
const WRITABLE_BY_OTHERS: u32 = 0o002;
const WRITABLE_BY_GROUP: u32 = 0o020;
/// Users may not touch the files of others, even in a directory to which they may write.
const STICKY: u32 = 0o1000;

/// Directories, and links in their place, that belong to root on every system. If a user namespace hides the owner,
/// only these count as root's. Any other directory could belong to any user.
const SYSTEM_DIRS: [&str; 22] = [
    "/",
    "/dev",
    "/dev/shm",
    "/etc",
    "/home",
    "/media",
    "/mnt",
    "/opt",
    "/root",
    "/run",
    "/run/user",
    "/srv",
    "/tmp",
    "/usr",
    "/usr/local",
    "/usr/tmp",
    "/var",
    "/var/cache",
    "/var/lib",
    "/var/opt",
    "/var/run",
    "/var/tmp",
];

/// The users who may own a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// Only the current user.
    Us,
    /// The current user, or root, who can do everything anyway.
    UsOrRoot,
}

/// The current user, and what this user namespace shows about others.
pub(super) struct TrustedUsers {
    own: u32,
    /// The number that this user namespace shows for all users that it does not map; `None` if it maps that number to a
    /// user.
    unmapped: Option<u32>,
    /// The owner of `/`.
    root_dir: u32,
}

impl TrustedUsers {
    /// Determines the current user. `root_dir` shows who owns `/`.
    pub(super) fn new(root_dir: &Stat) -> Result<Self, DirError> {
        let own = rustix::process::geteuid().as_raw();
        let unmapped = unmapped_user();
        if unmapped == Some(own) {
            return Err(DirError::Unmapped { own });
        }
        Ok(Self { own, unmapped, root_dir: root_dir.st_uid })
    }

    /// Checks that a directory or link belongs to the current user or to root.
    pub(super) fn check_owner(&self, path: &Path, owner: u32) -> Result<(), DirError> {
        if owner == self.own || owner == ROOT {
            return Ok(());
        }
        if self.unmapped != Some(owner) {
            return Err(DirError::ForeignOwner { path: path.to_owned(), owner });
        }
        // If root is mapped, `/` shows it, and this owner is another user.
        let roots = self.root_dir == owner && SYSTEM_DIRS.iter().any(|dir| Path::new(dir) == path);
        if roots { Ok(()) } else { Err(DirError::UnknownOwner { path: path.to_owned() }) }
    }

    /// Checks that no other user can change the contents of a directory on the way.
    pub(super) fn check_parent(&self, path: &Path, dir: impl AsFd, stat: &Stat) -> Result<(), DirError> {
        self.check_owner(path, stat.st_uid)?;
        if mode(stat) & STICKY != 0 { Ok(()) } else { self.check_mode(path, dir, stat) }
    }

    /// Checks that only its owner can change a directory.
    pub(super) fn check_own(
        &self,
        path: &Path,
        dir: impl AsFd,
        stat: &Stat,
        owner: Owner,
    ) -> Result<(), DirError> {
        self.check_owner(path, stat.st_uid)?;
        if owner == Owner::Us && stat.st_uid != self.own {
            return Err(DirError::NotOurs { path: path.to_owned(), own: self.own });
        }
        self.check_mode(path, dir, stat)
    }

    fn check_mode(&self, path: &Path, dir: impl AsFd, stat: &Stat) -> Result<(), DirError> {
        let shown = mode(stat);
        if shown & WRITABLE_BY_OTHERS != 0 {
            return Err(DirError::WritableByOthers { path: path.to_owned(), mode: shown });
        }
        let may_write = shown & WRITABLE_BY_GROUP != 0;
        if may_write && (!is_ours_alone(stat.st_gid, self.own) || has_acl(dir)) {
            let (path, group) = (path.to_owned(), stat.st_gid);
            return Err(DirError::WritableByGroup { path, group, mode: shown });
        }
        Ok(())
    }
}

#[cfg_attr(target_os = "linux", expect(clippy::unnecessary_cast, reason = "it is narrower elsewhere"))]
fn mode(stat: &Stat) -> u32 {
    (stat.st_mode & 0o7777) as u32
}

/// Returns the number that stands for all users that this user namespace does not map, unless it maps a user to that
/// number.
#[cfg(target_os = "linux")]
fn unmapped_user() -> Option<u32> {
    // Without /proc, nothing is known, and only user 0 counts as root.
    let map = std::fs::read_to_string("/proc/self/uid_map").ok()?;
    let number = std::fs::read_to_string("/proc/sys/kernel/overflowuid").ok()?.trim().parse().ok()?;
    (!maps(&map, number)).then_some(number)
}

#[cfg(not(target_os = "linux"))]
fn unmapped_user() -> Option<u32> {
    None
}

/// Returns whether a user has this number in a namespace with this `uid_map`.
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "only Linux has user namespaces"))]
fn maps(uid_map: &str, user: u32) -> bool {
    uid_map.lines().any(|line| {
        let mut numbers = line.split_ascii_whitespace().map(|number| number.parse::<u64>().ok());
        let (inside, _outside, count) = (numbers.next(), numbers.next(), numbers.next());
        match (inside.flatten(), count.flatten()) {
            (Some(inside), Some(count)) => (inside..inside + count).contains(&u64::from(user)),
            // An unreadable line counts as mapping all users, so that no other user counts as root.
            _ => true,
        }
    })
}

/// Returns whether a group provably has no members except the current user and root. Debian and Ubuntu give each user
/// such a group, which may write to everything that the user creates with the umask 002. The C library is not asked,
/// because directory services on a network list only some of the users, which proves nothing.
#[cfg(target_os = "linux")]
fn is_ours_alone(group: u32, own: u32) -> bool {
    let read = |name: &str| std::fs::read_to_string(name);
    let sources = match read("/etc/nsswitch.conf") {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(_) => return false,
    };
    let (Ok(users), Ok(groups)) = (read("/etc/passwd"), read("/etc/group")) else { return false };
    users_are_local(&sources) && has_no_others(group, own, &users, &groups)
}

/// Returns false: other systems do not keep users in files, or do not give each user a group.
#[cfg(not(target_os = "linux"))]
fn is_ours_alone(_group: u32, _own: u32) -> bool {
    false
}

/// Returns whether all users and groups come from local files, or from systemd for its services.
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "see is_ours_alone"))]
fn users_are_local(nsswitch: &str) -> bool {
    let lines = nsswitch.lines().map(|line| line.split('#').next().unwrap_or(""));
    lines.filter_map(|line| line.split_once(':')).all(|(database, sources)| {
        let concerns_users = ["passwd", "group", "initgroups"].contains(&database.trim());
        !concerns_users
            || sources.split_ascii_whitespace().all(|source| source == "files" || source == "systemd")
    })
}

/// Returns whether only the current user and root are in a group, according to `/etc/passwd` and `/etc/group`.
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "see is_ours_alone"))]
fn has_no_others(group: u32, own: u32, users: &str, groups: &str) -> bool {
    let mut trusted = Vec::new();
    for line in users.lines().filter(|line| !line.is_empty()) {
        let fields: Vec<&str> = line.split(':').collect();
        let number = |field: usize| fields.get(field)?.parse::<u32>().ok();
        let (Some(user), Some(primary)) = (number(2), number(3)) else { return false };
        if user == own || user == ROOT {
            trusted.push(fields[0]);
        } else if primary == group {
            return false;
        }
    }
    let mut is_known = false;
    for line in groups.lines().filter(|line| !line.is_empty()) {
        let fields: Vec<&str> = line.split(':').collect();
        let Some(number) = fields.get(2).and_then(|id| id.parse::<u32>().ok()) else { return false };
        if number == group {
            let members = fields.get(3).copied().unwrap_or("").split(',');
            if members.map(str::trim).any(|member| !member.is_empty() && !trusted.contains(&member)) {
                return false;
            }
            is_known = true;
        }
    }
    is_known
}

/// Returns whether an access control list may allow more than the mode shows. Such a list can grant no more than the
/// group bits of the mode, so it matters only if the group may write.
#[cfg(target_os = "linux")]
fn has_acl(dir: impl AsFd) -> bool {
    use rustix::io::Errno;
    // The check goes through /proc, because the descriptor may have been opened with O_PATH.
    let path = format!("/proc/self/fd/{}", dir.as_fd().as_raw_fd());
    let mut none = [0_u8; 0];
    let list = rustix::fs::getxattr(path, "system.posix_acl_access", &mut none);
    !matches!(list, Err(Errno::NODATA | Errno::OPNOTSUPP))
}

#[cfg(not(target_os = "linux"))]
fn has_acl(_dir: impl AsFd) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_map_maps_the_users_it_names_and_an_unreadable_one_maps_all() {
        let initial = "         0          0 4294967295\n";
        assert!(maps(initial, 65534) && maps(initial, 0));
        let own_only = "      1000       1000          1\n";
        assert!(maps(own_only, 1000) && !maps(own_only, 65534));
        let rootless = "0 1000 1\n1 100000 65536\n";
        assert!(maps(rootless, 65534) && !maps(rootless, 65537));
        assert!(maps("garbage", 65534));
        assert!(!maps("", 65534));
    }

    #[test]
    fn users_that_may_come_from_a_network_do_not_prove_a_private_group() {
        assert!(
            users_are_local("") && users_are_local("passwd: files systemd\ngroup: files\nhosts: files dns\n")
        );
        assert!(users_are_local("# passwd: sss\n passwd : files # sss\n"));
        for line in ["passwd: files sss", "group: ldap files", "initgroups: winbind", "passwd: compat"] {
            assert!(!users_are_local(line), "{line}");
        }
    }

    #[test]
    fn unreadable_or_incomplete_user_files_do_not_prove_a_private_group() {
        let users = "root:x:0:0::/:\nme:x:7:7::/:\nyou:x:8:8::/:\n";
        assert!(has_no_others(7, 7, users, "me:x:7:\n"));
        assert!(!has_no_others(8, 7, users, "you:x:8:\n"));
        assert!(!has_no_others(7, 7, users, "me:x:7:\n+\n"));
        assert!(!has_no_others(7, 7, "me:x:seven:7::/:\n", "me:x:7:\n"));
        assert!(!has_no_others(7, 7, users, ""));
    }
}
