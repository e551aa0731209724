//! A file whose contents are embedded in the library: compared at each use, and written completely or not at all.
//!
//! The file gets its name once it is complete and on the disk. Until then it has none (`O_TMPFILE`), so a killed writer
//! leaves nothing. If the file system does not support that, or another file has the name, the file is first called
//! `.tmp-…` and is locked while its writer lives. Unlocked temporary files are removed.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::{KeepError, file_removal};
use crate::RunId;
use crate::state::file_limit::{self, SignalBlock};

const TEMPORARY: &str = ".tmp-";

/// How often a temporary file is created again if another process removes it before it is locked.
const ATTEMPTS: u32 = 10;

/// The age at which an unlocked file of an earlier version is certainly not being written any more.
const LONG_AGO: Duration = Duration::from_hours(1);

/// The state in which a file was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kept {
    /// The file was correct.
    Intact,
    /// The file was missing, and was written.
    Written,
    /// The file had other contents, or other users could have changed it. It was replaced.
    Replaced,
}

/// A file and its required contents.
pub(super) struct KeptFile<'a> {
    pub(super) dir: &'a OwnedFd,
    /// The path for error messages.
    pub(super) path: PathBuf,
    pub(super) name: &'a str,
    pub(super) contents: &'a [u8],
    pub(super) mode: Mode,
}

/// The result of a check of the file.
enum FileCheck {
    Good(OwnedFd),
    Bad,
    Nothing,
}

/// Writes the file unless it is correct, and opens it for reading.
pub(super) fn keep(target: &KeptFile<'_>) -> Result<(OwnedFd, Kept), KeepError> {
    let path = || target.path.clone();
    let is_bad = match target.look() {
        Ok(FileCheck::Good(file)) => return Ok((file, Kept::Intact)),
        Ok(FileCheck::Bad) => true,
        Ok(FileCheck::Nothing) => false,
        Err(source) => return Err(KeepError::Look { path: path(), source }),
    };
    remove_temporaries(target.dir);
    match target.write().map_err(file_limit::in_words) {
        Ok(file) => Ok((file, if is_bad { Kept::Replaced } else { Kept::Written })),
        Err(source) if is_bad => Err(KeepError::Replace { path: path(), source }),
        Err(source) => Err(KeepError::Write { path: path(), source }),
    }
}

impl KeptFile<'_> {
    fn look(&self) -> io::Result<FileCheck> {
        match rustix::fs::statat(self.dir, self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode).is_file() => {}
            // The file is not opened, because opening some devices has effects.
            Ok(_) => return Ok(FileCheck::Bad),
            Err(Errno::NOENT) => return Ok(FileCheck::Nothing),
            Err(errno) => return Err(errno.into()),
        }
        match self.open(self.name) {
            Ok(file) if self.is_good(&file)? => Ok(FileCheck::Good(file)),
            Ok(_) | Err(Errno::ACCESS | Errno::LOOP | Errno::MLINK) => Ok(FileCheck::Bad),
            Err(Errno::NOENT) => Ok(FileCheck::Nothing),
            Err(errno) => Err(errno.into()),
        }
    }

    fn open(&self, name: &str) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::openat(self.dir, name, flags, Mode::empty())
    }

    fn is_good(&self, file: &OwnedFd) -> io::Result<bool> {
        let stat = rustix::fs::fstat(file)?;
        let is_ours = stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_mode & 0o022 == 0;
        let serves = Mode::from_raw_mode(stat.st_mode).contains(self.mode);
        Ok(FileType::from_raw_mode(stat.st_mode).is_file()
            && is_ours
            && serves
            && stat.st_size as u64 == self.contents.len() as u64
            && holds(file, self.contents)?)
    }

    fn write(&self) -> io::Result<OwnedFd> {
        let _blocked = SignalBlock::new();
        // If the file system lacks unnamed files, the second method works. Other errors affect both.
        self.write_unnamed().or_else(|_| self.write_named())
    }

    /// Writes a file without a name, and gives it one when it is complete.
    #[cfg(target_os = "linux")]
    fn write_unnamed(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::openat(self.dir, ".", flags, self.mode)?);
        self.fill(&mut file)?;
        // A program that is open for writing cannot be executed, so it is closed before it gets its name.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let done = rustix::fs::open(link_of(file.as_raw_fd()), flags, Mode::empty())?;
        drop(file);
        let give = |name: &str| {
            let from = link_of(done.as_raw_fd());
            rustix::fs::linkat(rustix::fs::CWD, from, self.dir, name, AtFlags::SYMLINK_FOLLOW)
        };
        match give(self.name) {
            Ok(()) => Ok(done),
            Err(Errno::EXIST) => {
                lock(&done)?;
                let temporary = temporary_name();
                give(&temporary)?;
                self.rename(&temporary)?;
                Ok(done)
            }
            Err(errno) => Err(errno.into()),
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn write_unnamed(&self) -> io::Result<OwnedFd> {
        Err(Errno::OPNOTSUPP.into())
    }

    fn write_named(&self) -> io::Result<OwnedFd> {
        for _ in 0..ATTEMPTS {
            let temporary = temporary_name();
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let mut file = File::from(rustix::fs::openat(self.dir, &temporary, flags, self.mode)?);
            // Another process found the file before it was locked, and removes it.
            if lock(&file).is_err() {
                continue;
            }
            let filled = self.fill(&mut file).inspect_err(|_| self.unlink(&temporary));
            filled?;
            let done = match self.open(&temporary) {
                Ok(done) => done,
                Err(Errno::NOENT) => continue,
                Err(errno) => {
                    self.unlink(&temporary);
                    return Err(errno.into());
                }
            };
            lock(&done)?;
            drop(file);
            match self.rename(&temporary) {
                Ok(()) => return Ok(done),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other("something keeps removing its temporary file"))
    }

    fn fill(&self, file: &mut File) -> io::Result<()> {
        file.write_all(self.contents)?;
        // Sets the mode regardless of the umask.
        rustix::fs::fchmod(&*file, self.mode)?;
        file.sync_all()
    }

    fn rename(&self, temporary: &str) -> io::Result<()> {
        let renamed = rustix::fs::renameat(self.dir, temporary, self.dir, self.name);
        renamed.inspect_err(|_| self.unlink(temporary)).map_err(io::Error::from)
    }

    fn unlink(&self, temporary: &str) {
        let _ = rustix::fs::unlinkat(self.dir, temporary, AtFlags::empty());
    }
}

#[cfg(target_os = "linux")]
fn link_of(fd: i32) -> String {
    format!("/proc/self/fd/{fd}")
}

fn temporary_name() -> String {
    format!("{TEMPORARY}{}", RunId::new())
}

/// Takes a shared lock, which the writing and the reading descriptor can hold together. On a file system without locks,
/// the lock is not needed.
fn lock(file: impl std::os::fd::AsFd) -> io::Result<()> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockShared) {
        Err(Errno::WOULDBLOCK) => Err(Errno::WOULDBLOCK.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Returns whether a file has exactly these contents. An unreadable sector means no. Any other error says nothing about
/// the file.
fn holds(file: &OwnedFd, contents: &[u8]) -> io::Result<bool> {
    let mut part = vec![0; 64 * 1024];
    let mut at = 0;
    loop {
        match rustix::io::pread(file, &mut part[..], at as u64) {
            Ok(0) => return Ok(at == contents.len()),
            Ok(length) if contents[at..].starts_with(&part[..length]) => at += length,
            Ok(_) | Err(Errno::IO) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Removes the temporary files whose writers are gone.
pub(super) fn remove_temporaries(dir: &OwnedFd) {
    for name in file_removal::names(dir).unwrap_or_default() {
        let Some(text) = name.to_str() else { continue };
        if text.starts_with(TEMPORARY) {
            remove_unlocked(dir, text);
        } else if is_of_earlier_versions(text) && is_old(dir, text) {
            let _ = file_removal::remove_tree(dir, OsStr::new(text));
        }
    }
}

fn remove_unlocked(dir: &OwnedFd, name: &str) {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::openat(dir, name, flags, Mode::empty()) else { return };
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
        let _ = rustix::fs::unlinkat(dir, name, AtFlags::empty());
    }
}

/// Returns whether an earlier version wrote this temporary file: `keeper-HASH.PID` or `python-HASH.PID`, unlocked.
fn is_of_earlier_versions(name: &str) -> bool {
    let parts = ["keeper-", "python-"].iter().find_map(|prefix| name.strip_prefix(prefix)?.split_once('.'));
    parts.is_some_and(|(hash, pid)| {
        hash.len() == 16
            && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
            && !pid.is_empty()
            && pid.bytes().all(|byte| byte.is_ascii_digit())
    })
}

fn is_old(dir: &OwnedFd, name: &str) -> bool {
    let Ok(stat) = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) else { return false };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let then = Duration::from_secs(u64::try_from(stat.st_mtime).unwrap_or(0));
    now.saturating_sub(then) > LONG_AGO
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Home {
        path: tempfile::TempDir,
        dir: OwnedFd,
    }

    impl Home {
        fn new() -> Self {
            let path = tempfile::tempdir().unwrap();
            let dir = File::open(path.path()).unwrap().into();
            Self { path, dir }
        }

        fn target<'a>(&'a self, contents: &'a [u8]) -> KeptFile<'a> {
            KeptFile {
                dir: &self.dir,
                path: self.path.path().join("file"),
                name: "file",
                contents,
                mode: Mode::RUSR,
            }
        }

        fn read(&self) -> Vec<u8> {
            std::fs::read(self.path.path().join("file")).unwrap()
        }

        fn count(&self) -> usize {
            file_removal::names(&self.dir).unwrap().len()
        }
    }

    #[test]
    fn a_file_is_written_once_and_replaced_when_it_differs() {
        let home = Home::new();
        let kept = |contents: &[u8]| keep(&home.target(contents)).unwrap().1;
        assert_eq!(kept(b"one"), Kept::Written);
        assert_eq!(kept(b"one"), Kept::Intact);
        assert_eq!(kept(b"two"), Kept::Replaced);
        assert_eq!((home.read(), home.count()), (b"two".to_vec(), 1));
    }

    #[test]
    fn without_nameless_files_the_file_is_the_same() {
        let home = Home::new();
        for contents in [b"one", b"two"] {
            drop(home.target(contents).write_named().unwrap());
            assert_eq!((home.read(), home.count()), (contents.to_vec(), 1));
        }
    }

    #[test]
    fn constant_removal_of_temporary_files_disturbs_no_writer() {
        let home = Home::new();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    remove_temporaries(&home.dir);
                }
            });
            for round in 0..200_u32 {
                let contents = round.to_le_bytes();
                let target = home.target(&contents);
                let written = if round % 2 == 0 { target.write_named() } else { target.write() };
                assert!(holds(&written.unwrap(), &contents).unwrap());
                assert_eq!(home.read(), contents);
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }

    #[test]
    fn temporary_files_of_earlier_versions_are_recognized_by_name() {
        assert!(is_of_earlier_versions("keeper-0123456789abcdef.4711"));
        assert!(is_of_earlier_versions("python-0123456789abcdef.1"));
        for name in ["keeper-0123456789abcdef", "keeper-0123456789abcdef.x", "keeper-1.2", "notes.1", "runs"]
        {
            assert!(!is_of_earlier_versions(name), "{name}");
        }
    }
}
