//! The state directory: where runs are recorded, and who may touch it.
//!
//! ```text
//! STATE_DIR/            0700, ours, not a link, and nobody else can swap it: see `walk`
//!   keeper-<hash>       0700: the keeper's program, one for each build of the library; see `kept_file`
//!   .tmp-…              a file that is being written, where it must have a name
//!   runs/
//!     <run id>.<host>/  0700: one run; see `run_name` and `run_dir`
//!       ledger          0600: see `ledger`
//!       lock            0600: locked by host, keeper and shims; free means that none of them lives
//!     .new-…            not yet a run: locked as a directory by who makes it
//!     .old              no run any more, and empty: left after a host was killed; the next start removes it
//! ```
//!
//! Everything is opened relative to the descriptor of a directory that was looked at.

mod error;
mod kept_file;
mod owner;
mod private_dir;
mod remove;
mod run_dir;
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
use crate::run_name::RunName;
use private_dir::open_own;
use remove::remove_tree;
use run_dir::{LEDGER, LOCK, look_at_lock};

pub use error::{DirError, KeepError, StateError};
pub use kept_file::Kept;
pub use owner::Owner;
pub use private_dir::PrivateDir;
pub(crate) use run_dir::{Lock, RunDir};

/// The prefix of a run's directory before it is complete.
const UNBORN: &str = ".new-";
/// What the keeper calls the directory of a run that is over: see `keeper/ledger.rs`.
const SET_ASIDE: &str = ".old";
const RUNS: &str = "runs";

/// How often a directory that somebody has removed before it was locked is made anew.
const ATTEMPTS: u32 = 10;

/// Where runs are recorded unless said otherwise: `SNAKEPIT_STATE_DIR`, else `/var/lib/snakepit` for root,
/// else the XDG state directory.
pub fn default_state_dir() -> Result<PathBuf, StateError> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(path) = variable("SNAKEPIT_STATE_DIR") {
        return Ok(path);
    }
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/snakepit"));
    }
    // The XDG specification asks that relative paths be ignored.
    variable("XDG_STATE_HOME")
        .filter(|path| path.is_absolute())
        .or_else(|| variable("HOME").map(|home| home.join(".local/state")))
        .map(|base| base.join("snakepit"))
        .ok_or(StateError::NoPlace)
}

/// The state directory, opened and found to be ours alone.
#[derive(Debug)]
pub(crate) struct StateDir {
    dir: PrivateDir,
    runs: Arc<OwnedFd>,
    runs_path: PathBuf,
}

impl StateDir {
    /// The directory itself.
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Opens it, making what is missing.
    pub(crate) fn open(path: &Path) -> Result<Self, StateError> {
        let dir = PrivateDir::open(path, Owner::Us).map_err(StateError::dir(path))?;
        let runs_path = dir.path().join(RUNS);
        walk::make(dir.fd(), RUNS.as_ref(), &runs_path, 0o700).map_err(StateError::dir(path))?;
        Self::with_runs(dir, runs_path)
    }

    /// Opens it if it is there.
    pub(crate) fn open_existing(path: &Path) -> Result<Option<Self>, StateError> {
        let opened = PrivateDir::open_existing(path, Owner::Us).map_err(StateError::dir(path))?;
        let Some(dir) = opened else { return Ok(None) };
        let runs_path = dir.path().join(RUNS);
        match rustix::fs::statat(&dir, RUNS, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Self::with_runs(dir, runs_path).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(StateError::io("look at", &runs_path)(errno)),
        }
    }

    fn with_runs(dir: PrivateDir, runs_path: PathBuf) -> Result<Self, StateError> {
        let runs = open_own(dir.fd(), RUNS, &runs_path).map_err(StateError::dir(dir.path()))?;
        Ok(Self { runs: Arc::new(runs), runs_path, dir })
    }

    /// A program kept here between runs, to be executed through its descriptor.
    pub(crate) fn program(&self, name: &str, bytes: &[u8]) -> Result<(OwnedFd, Kept), KeepError> {
        self.dir.keep_program(name, bytes)
    }

    /// Where such a program is.
    pub(crate) fn program_path(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// A descriptor of its own of the runs' directory, to be locked.
    pub(crate) fn open_runs(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&*self.runs, ".", flags, Mode::empty())?)
    }

    /// Tells this state directory from others, also where it is mounted elsewhere.
    pub(crate) fn digest(&self) -> io::Result<u64> {
        let stat = rustix::fs::fstat(&*self.runs)?;
        Ok((stat.st_dev as u64).rotate_left(32) ^ stat.st_ino as u64)
    }

    /// The names of the runs on record, oldest first, and of those that are not yet.
    pub(crate) fn run_names(&self) -> Result<Vec<OsString>, StateError> {
        let mut names = remove::names(&*self.runs).map_err(StateError::io("list", &self.runs_path))?;
        names.retain(|name| name != SET_ASIDE);
        names.sort();
        Ok(names)
    }

    /// Opens a run's directory; `None` if it has gone meanwhile.
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

    /// Makes a run's directory, locked. It appears under its name only when `fill` has succeeded.
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
                File::from(create_file(&dir, LEDGER).map_err(StateError::io("make", &path.join(LEDGER)))?);
            fill(&ledger).map_err(StateError::io("write", &path.join(LEDGER)))?;
            rustix::fs::renameat(&*self.runs, &unborn, &*self.runs, &name)
                .map_err(StateError::io("name", &path))
        })();
        if let Err(error) = made {
            let _ = remove_tree(&self.runs, &unborn);
            return Err(error);
        }
        // From now on its lock speaks for it.
        let _ = rustix::fs::flock(&dir, FlockOperation::Unlock);
        Ok((RunDir { path, dir, runs: Arc::clone(&self.runs), name }, lock))
    }

    /// A directory that is not yet a run, and its lock. Whoever looks for those of dead hosts may find it before it is
    /// locked, and remove it; then there is another.
    fn begin_run(&self, run: RunId, path: &Path) -> Result<(OsString, OwnedFd, OwnedFd), StateError> {
        let mut last = Errno::NOENT;
        for attempt in 0..ATTEMPTS {
            let unborn = OsString::from(format!("{UNBORN}{run}-{attempt}"));
            walk::make(&self.runs, &unborn, path, 0o700).map_err(StateError::dir(self.path()))?;
            let begun = (|| {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let dir = rustix::fs::openat(&*self.runs, &unborn, flags, Mode::empty())?;
                // A file system may have no locks for directories; then its age speaks for it.
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
        Err(StateError::io("make", path)(last))
    }

    /// Removes what the last keeper has set aside, and the temporary files of killed starts. The directory is not used
    /// again: whoever still has it open, as a reaper may, would take the next run for the one that he meant.
    pub(crate) fn remove_set_aside(&self) {
        let _ = remove_tree(&self.runs, SET_ASIDE.as_ref());
        self.dir.remove_temporaries();
    }

    /// Removes what a host left that died while it made its directory. Nothing was ever started from it.
    pub(crate) fn remove_unborn(&self, name: &Path) {
        const LONG_AGO: std::time::Duration = std::time::Duration::from_hours(1);
        let Ok(dir) = open_own(&self.runs, name, &self.runs_path.join(name)) else { return };
        let is_left = match rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive) {
            // Earlier versions have locked only the file in it.
            Ok(()) => matches!(look_at_lock(&dir), Ok(Lock::Free)),
            Err(Errno::WOULDBLOCK) => false,
            // No locks for directories here.
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

/// Whether a name in `runs/` is of a run that is not yet.
pub(crate) fn is_unborn(name: &Path) -> bool {
    name.to_string_lossy().starts_with(UNBORN)
}

/// The run that such a name will be.
pub(crate) fn unborn_run(name: &Path) -> Option<RunId> {
    name.to_str()?.strip_prefix(UNBORN)?.split('-').next()?.parse().ok()
}

fn create_file(dir: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let file = rustix::fs::openat(dir, name, flags, mode)?;
    // Whatever the umask.
    rustix::fs::fchmod(&file, mode)?;
    Ok(file)
}
