//! The way to a directory, from the root of the file system down, by descriptors.
//!
//! Whoever owns a directory on the way, or may write to it, can put another in the place of what lies below. So each is
//! opened relative to the one before, never through a link, and looked at: see `owner`. A link on the way is read and
//! followed by hand if it is root's or ours: `/home` and `/var/run` are links on real systems. What is opened in this
//! way cannot be swapped by anybody who is not trusted.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::DirError;
use super::owner::{Owner, Trust};

/// How many links may be on the way; as many as the kernel follows.
const MOST_LINKS: usize = 40;

/// For its name and its attributes alone, so that a directory that may be passed but not read can be passed.
#[cfg(target_os = "linux")]
const PASS: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const PASS: OFlags = OFlags::from_bits_retain(libc::O_SEARCH as u32);

/// What happens to directories that are not there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Missing {
    /// They are made.
    Make,
    /// Then there is none.
    Leave,
}

/// Opens a directory; `None` if it is not there and not to be made. The path is an absolute one.
pub(super) fn open(path: &Path, owner: Owner, missing: Missing) -> Result<Option<OwnedFd>, DirError> {
    let root = rustix::fs::open("/", PASS | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(DirError::io("open", Path::new("/")))?;
    let stat = rustix::fs::fstat(&root).map_err(DirError::io("look at", Path::new("/")))?;
    let trust = Trust::new(&stat)?;
    let mut walk = Walk {
        trust,
        at: root,
        shown: PathBuf::from("/"),
        left: parts(path).collect(),
        of_links: 0,
        links: 0,
    };
    while let Some(name) = walk.left.pop_front() {
        if !walk.step(&name, missing)? {
            return Ok(None);
        }
    }
    walk.arrive(owner).map(Some)
}

/// The names in a path; `.` is none.
fn parts(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

struct Walk {
    trust: Trust,
    at: OwnedFd,
    /// Where that is, for errors.
    shown: PathBuf,
    left: VecDeque<OsString>,
    /// How many of those at the front a link has named.
    of_links: usize,
    links: usize,
}

/// What a name stands for.
enum Found {
    Dir(OwnedFd),
    /// What it says, and who made it.
    Link(PathBuf, u32),
    Nothing,
}

impl Walk {
    /// Goes on to the directory of this name; false if it is not there.
    fn step(&mut self, name: &OsStr, missing: Missing) -> Result<bool, DirError> {
        // The directory in which we are is one on the way, since something follows.
        let stat = rustix::fs::fstat(&self.at).map_err(DirError::io("look at", &self.shown))?;
        self.trust.check_parent(&self.shown, &self.at, &stat)?;
        let is_last = self.left.is_empty();
        let named_by_link = self.of_links > 0;
        self.of_links = self.of_links.saturating_sub(1);
        let path = if name == ".." {
            self.shown.parent().unwrap_or(&self.shown).to_owned()
        } else {
            self.shown.join(name)
        };
        let mut found = self.look(name).map_err(DirError::io("open", &path))?;
        if matches!(found, Found::Nothing) && missing == Missing::Make && !named_by_link {
            make(&self.at, name, &path, if is_last { 0o700 } else { 0o755 })?;
            found = self.look(name).map_err(DirError::io("open", &path))?;
        }
        match found {
            Found::Dir(dir) => {
                self.at = dir;
                self.shown = path;
                Ok(true)
            }
            Found::Link(..) if is_last => Err(DirError::IsLink { path }),
            Found::Link(target, owner) => self.follow(&path, &target, owner).map(|()| true),
            // A link that leads nowhere is not made good.
            Found::Nothing if missing == Missing::Make => Err(DirError::io("open", &path)(Errno::NOENT)),
            Found::Nothing => Ok(false),
        }
    }

    fn look(&self, name: &OsStr) -> Result<Found, Errno> {
        let flags = PASS | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.at, name, flags, Mode::empty()) {
            Ok(dir) => Ok(Found::Dir(dir)),
            Err(Errno::NOENT) => Ok(Found::Nothing),
            Err(errno @ (Errno::NOTDIR | Errno::LOOP | Errno::MLINK)) => {
                match read_link(&self.at, name) {
                    Ok((target, owner)) => Ok(Found::Link(OsString::from_vec(target).into(), owner)),
                    // The last: what Linux says of a descriptor that is no link.
                    Err(Errno::INVAL | Errno::NOENT) => Err(errno),
                    Err(other) => Err(other),
                }
            }
            Err(errno) => Err(errno),
        }
    }

    /// Puts what a link says in the place of its name.
    fn follow(&mut self, path: &Path, target: &Path, owner: u32) -> Result<(), DirError> {
        self.links += 1;
        if self.links > MOST_LINKS {
            return Err(DirError::TooManyLinks { path: path.to_owned() });
        }
        self.trust.check_owner(path, owner)?;
        if target.is_absolute() {
            let flags = PASS | OFlags::DIRECTORY | OFlags::CLOEXEC;
            self.at =
                rustix::fs::open("/", flags, Mode::empty()).map_err(DirError::io("open", Path::new("/")))?;
            self.shown = PathBuf::from("/");
        }
        let parts: Vec<OsString> = parts(target).collect();
        self.of_links += parts.len();
        for part in parts.into_iter().rev() {
            self.left.push_front(part);
        }
        Ok(())
    }

    /// Opens the directory in which the way has ended, to be used.
    fn arrive(self, owner: Owner) -> Result<OwnedFd, DirError> {
        let stat = rustix::fs::fstat(&self.at).map_err(DirError::io("look at", &self.shown))?;
        self.trust.check_own(&self.shown, &self.at, &stat, owner)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(&self.at, ".", flags, Mode::empty()).map_err(DirError::io("open", &self.shown))
    }
}

/// What a link says, and whose it is: of one and the same link, whoever may put another in its place meanwhile.
#[cfg(target_os = "linux")]
fn read_link(dir: &OwnedFd, name: &OsStr) -> Result<(Vec<u8>, u32), Errno> {
    let link =
        rustix::fs::openat(dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let owner = rustix::fs::fstat(&link)?.st_uid;
    Ok((rustix::fs::readlinkat(&link, "", Vec::new())?.into_bytes(), owner))
}

/// The same, where a link cannot be held: its owner is asked for before and after.
#[cfg(not(target_os = "linux"))]
fn read_link(dir: &OwnedFd, name: &OsStr) -> Result<(Vec<u8>, u32), Errno> {
    let stat = || rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
    let before = stat()?;
    let target = rustix::fs::readlinkat(dir, name, Vec::new())?.into_bytes();
    let after = stat()?;
    let same = (before.st_ino, before.st_uid) == (after.st_ino, after.st_uid);
    if same { Ok((target, before.st_uid)) } else { Err(Errno::AGAIN) }
}

/// Makes a directory. Whatever the umask, its owner can use it and no group can write to it.
pub(super) fn make(parent: &OwnedFd, name: &OsStr, path: &Path, mode: u32) -> Result<(), DirError> {
    match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(mode as _)) {
        // Somebody else has made it at the same moment, and it is looked at like all others.
        Err(Errno::EXIST) => return Ok(()),
        made => made.map_err(DirError::io("make", path))?,
    }
    let stat = match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        // Gone again; whoever opens it finds out.
        Err(Errno::NOENT) => return Ok(()),
        stat => stat.map_err(DirError::io("look at", path))?,
    };
    let made = Mode::from_raw_mode(stat.st_mode);
    if made.contains(Mode::RWXU) {
        return Ok(());
    }
    rustix::fs::chmodat(parent, name, made | Mode::RWXU, AtFlags::empty())
        .map_err(DirError::io("make usable", path))
}
