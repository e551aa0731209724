//! The state directory: where runs are recorded, and which users may change it.
//!
//! Owns files and directories, and the proof that no other user can change them. It must not know the meaning of a
//! record.
//!
//! ```text
//! STATE_DIR/            0700, owned by this user, not a link, not replaceable by others: see `walk`
//!   keeper-<hash>       0700: the keeper's program, one for each build of the library; see `kept_file`
//!   .tmp-…              a file that is being written, where it must have a name
//!   runs/
//!     <run id>.<host>/  0700: one run; see `run_name` and `run_dir`
//!       ledger          0600: see `ledger`
//!       lock            0600: locked by host, keeper and shims; free means that none of them lives
//!     .new-…            not yet a run: a directory that its creator has locked
//!     .old              no longer a run, and empty: left after a host was killed; the next start removes it
//! ```
//!
//! Everything is opened relative to the descriptor of a directory that was checked.
//!
//! From the root down: `owner` (which users to trust) → `walk` (the way to a directory) → `private_dir` → `kept_file` →
//! `run_name`, `run_dir` (one run) → `file_removal`. `file_limit` turns `ulimit -f` into an error. `error` has the reasons
//! why something cannot be used.

mod error;
pub(crate) mod file_limit;
mod file_removal;
mod kept_file;
mod owner;
mod private_dir;
mod run_dir;
pub(crate) mod run_name;
mod walk;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::RunId;
use crate::failpoint::hit;
use crate::state::run_name::RunName;
use file_removal::remove_tree;
use private_dir::open_own;
use run_dir::{LEDGER, LOCK, look_at_lock};

pub(crate) use error::error_chain;
pub use error::{DirError, KeepError, StateError};
pub use kept_file::Kept;
pub use owner::Owner;
pub use private_dir::PrivateDir;
pub(crate) use run_dir::{LockState, RunDir, write_records};

/// The prefix of a run's directory before it is complete.
const UNBORN: &str = ".new-";
/// The name that the keeper gives to the directory of a run that is over. See `keeper/ledger.rs`.
const SET_ASIDE: &str = ".old";
const RUNS: &str = "runs";

/// How often a directory is created again if another process removes it before it is locked.
const ATTEMPTS: u32 = 10;

/// Returns the state directory for `CustodyOptions::state_dir: None`: `SNAKEPIT_STATE_DIR`, else `/var/lib/snakepit` for root,
/// else the XDG state directory.
pub fn default_state_dir() -> Result<PathBuf, StateError> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(path) = variable("SNAKEPIT_STATE_DIR") {
        return Ok(path);
    }
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/snakepit"));
    }
    // The XDG specification requires that relative paths are ignored.
    variable("XDG_STATE_HOME")
        .filter(|path| path.is_absolute())
        .or_else(|| variable("HOME").map(|home| home.join(".local/state")))
        .map(|base| base.join("snakepit"))
        .ok_or(StateError::NoPlace)
}

/// The state directory: open, and checked to belong only to the current user.
#[derive(Debug)]
pub(crate) struct StateDir {
    dir: PrivateDir,
    runs: Arc<OwnedFd>,
    runs_path: PathBuf,
}

impl StateDir {
    /// Returns the path of the directory.
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Opens the directory, and creates its missing parts.
    pub(crate) fn open(path: &Path) -> Result<Self, StateError> {
        let dir = PrivateDir::open(path, Owner::Us).map_err(StateError::dir(path))?;
        let runs_path = dir.path().join(RUNS);
        walk::make(dir.fd(), RUNS.as_ref(), &runs_path, 0o700).map_err(StateError::dir(path))?;
        Self::with_runs(dir, runs_path)
    }

    /// Opens the directory if it exists.
    pub(crate) fn open_existing(path: &Path) -> Result<Option<Self>, StateError> {
        let opened = PrivateDir::open_existing(path, Owner::Us).map_err(StateError::dir(path))?;
        let Some(dir) = opened else { return Ok(None) };
        let runs_path = dir.path().join(RUNS);
        match rustix::fs::statat(&dir, RUNS, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Self::with_runs(dir, runs_path).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(StateError::io("examine", &runs_path)(errno)),
        }
    }

    fn with_runs(dir: PrivateDir, runs_path: PathBuf) -> Result<Self, StateError> {
        let runs = open_own(dir.fd(), RUNS, &runs_path).map_err(StateError::dir(dir.path()))?;
        Ok(Self { runs: Arc::new(runs), runs_path, dir })
    }

    /// Opens a program that is kept here between runs, to be executed through its descriptor. Writes it if necessary.
    pub(crate) fn program(&self, name: &str, bytes: &[u8]) -> Result<(OwnedFd, Kept), KeepError> {
        self.dir.keep_program(name, bytes)
    }

    /// Returns the path of such a program.
    pub(crate) fn program_path(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Opens a new descriptor of the directory of runs, for locking.
    pub(crate) fn open_runs(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&*self.runs, ".", flags, Mode::empty())?)
    }

    /// Returns a digest that distinguishes this state directory from others, wherever it is mounted.
    pub(crate) fn digest(&self) -> io::Result<u64> {
        let stat = rustix::fs::fstat(&*self.runs)?;
        Ok((stat.st_dev as u64).rotate_left(32) ^ stat.st_ino as u64)
    }

    /// Returns the names of the recorded runs, oldest first, and of unfinished ones.
    pub(crate) fn run_names(&self) -> Result<Vec<OsString>, StateError> {
        let mut names = file_removal::names(&*self.runs).map_err(StateError::io("list", &self.runs_path))?;
        names.retain(|name| name != SET_ASIDE);
        names.sort();
        Ok(names)
    }

    /// Opens a run's directory. Returns `None` if it was removed meanwhile.
    pub(crate) fn open_run(&self, name: &Path) -> Result<Option<RunDir>, StateError> {
        let path = self.runs_path.join(name);
        hit("look.run").map_err(StateError::io("open", &path))?;
        match open_own(&self.runs, name, &path) {
            Ok(dir) => Ok(Some(RunDir {
                path,
                dir,
                runs: Arc::clone(&self.runs),
                name: name.as_os_str().to_owned(),
            })),
            Err(DirError::Io { source, .. }) if source.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(StateError::dir(self.path())(error)),
        }
    }

    /// Creates a run's directory and locks it. It gets its name only when `fill` has succeeded.
    pub(crate) fn create_run(
        &self,
        name: &RunName,
        fill: impl FnOnce(&File) -> io::Result<()>,
    ) -> Result<(RunDir, OwnedFd), StateError> {
        let run = name.run;
        let name = OsString::from(name.to_string());
        let path = self.runs_path.join(&name);
        let (unborn, dir, lock) = self.begin_run(run, &path)?;
        let made = (|| {
            let ledger =
                File::from(create_file(&dir, LEDGER).map_err(StateError::io("create", &path.join(LEDGER)))?);
            fill(&ledger).map_err(StateError::io("write", &path.join(LEDGER)))?;
            rustix::fs::renameat(&*self.runs, &unborn, &*self.runs, &name)
                .map_err(StateError::io("name", &path))
        })();
        if let Err(error) = made {
            let _ = remove_tree(&self.runs, &unborn);
            return Err(error);
        }
        // From now on, the lock file protects the directory.
        let _ = rustix::fs::flock(&dir, FlockOperation::Unlock);
        Ok((RunDir { path, dir, runs: Arc::clone(&self.runs), name }, lock))
    }

    /// Creates a directory that is not yet a run, and its lock. A reaper may find the directory before it is locked and
    /// remove it. Then another one is created.
    fn begin_run(&self, run: RunId, path: &Path) -> Result<(OsString, OwnedFd, OwnedFd), StateError> {
        let mut last = Errno::NOENT;
        for attempt in 0..ATTEMPTS {
            let unborn = OsString::from(format!("{UNBORN}{run}-{attempt}"));
            walk::make(&self.runs, &unborn, path, 0o700).map_err(StateError::dir(self.path()))?;
            let begun = (|| {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let dir = rustix::fs::openat(&*self.runs, &unborn, flags, Mode::empty())?;
                // Some file systems cannot lock directories. There, the age of the directory protects it.
                if let Err(Errno::WOULDBLOCK) = rustix::fs::flock(&dir, FlockOperation::NonBlockingLockShared)
                {
                    return Err(Errno::WOULDBLOCK);
                }
                let lock = create_file(&dir, LOCK)?;
                rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
                Ok((dir, lock))
            })();
            match begun {
                Ok((dir, lock)) => return Ok((unborn, dir, lock)),
                Err(errno) => {
                    let _ = remove_tree(&self.runs, &unborn);
                    last = errno;
                    if !matches!(errno, Errno::NOENT | Errno::WOULDBLOCK) {
                        break;
                    }
                }
            }
        }
        Err(StateError::io("create", path)(last))
    }

    /// Removes the directory that the last keeper set aside, and the temporary files of killed starts. The directory is
    /// not reused: a reaper that still has it open would confuse the next run with the old one.
    pub(crate) fn remove_set_aside(&self) {
        let _ = remove_tree(&self.runs, SET_ASIDE.as_ref());
        self.dir.remove_temporaries();
    }

    /// Removes the directory of a host that died while creating it. No process was ever started from it.
    pub(crate) fn remove_unborn(&self, name: &Path) {
        const LONG_AGO: std::time::Duration = std::time::Duration::from_hours(1);
        let Ok(dir) = open_own(&self.runs, name, &self.runs_path.join(name)) else { return };
        let is_left = match rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive) {
            // Earlier versions locked only the file in the directory.
            Ok(()) => matches!(look_at_lock(&dir), Ok(LockState::Free)),
            Err(Errno::WOULDBLOCK) => false,
            // This file system has no locks for directories.
            Err(_) => File::from(dir)
                .metadata()
                .and_then(|metadata| metadata.modified())
                .is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age > LONG_AGO)),
        };
        if is_left {
            let _ = remove_tree(&self.runs, name.as_os_str());
        }
    }
}

/// Returns whether a name in `runs/` belongs to an unfinished run.
pub(crate) fn is_unborn(name: &Path) -> bool {
    name.to_string_lossy().starts_with(UNBORN)
}

/// Returns the run that such a directory will become.
pub(crate) fn unborn_run(name: &Path) -> Option<RunId> {
    name.to_str()?.strip_prefix(UNBORN)?.split('-').next()?.parse().ok()
}

fn create_file(dir: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let file = rustix::fs::openat(dir, name, flags, mode)?;
    // Sets the mode regardless of the umask.
    rustix::fs::fchmod(&file, mode)?;
    Ok(file)
}
