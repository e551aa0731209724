//! The state directory: where runs are recorded, and who may touch it.
//!
//! ```text
//! STATE_DIR/            0700, ours, not a link
//!   keeper-<hash>       0700: the keeper's program, one for each build of the library
//!   runs/
//!     <run id>/         0700: one run
//!       ledger          0600: see `ledger`
//!       lock            0600: locked by host, keeper and shims; free means that none of them lives
//!     .new-…            not yet a run
//!     .old              no run any more, and empty: left after a host was killed; the next start removes it
//! ```

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::RunId;
use crate::failpoint::hit;
use crate::run_name::RunName;

/// The prefix of a run's directory before it is complete.
const UNBORN: &str = ".new-";
/// What the keeper calls the directory of a run that is over: see `keeper/ledger.rs`.
const SET_ASIDE: &str = ".old";

/// Why the state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// There is no place for it.
    #[error("no place for the state: set SNAKEPIT_STATE_DIR, or HOME")]
    NoPlace,
    /// It is a symbolic link.
    #[error("the state directory {0} is a symbolic link: give the directory that it points to")]
    IsLink(PathBuf),
    /// It belongs to somebody else.
    #[error(
        "the state directory {path} belongs to user {owner}, not to {own}: choose another with SNAKEPIT_STATE_DIR"
    )]
    ForeignOwner {
        /// Which directory.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who we are.
        own: u32,
    },
    /// Others may write to it.
    #[error("the state directory {path} can be written by others (mode {mode:04o}): chmod 700 {path}")]
    TooOpen {
        /// Which directory.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The system refused.
    #[error("cannot {doing} {path}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

fn io_error<E: Into<io::Error>>(doing: &'static str, path: &Path) -> impl FnOnce(E) -> StateError {
    move |error| StateError::Io { doing, path: path.to_owned(), source: error.into() }
}

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
    /// Of the runs.
    path: PathBuf,
    state: OwnedFd,
    runs: OwnedFd,
}

impl StateDir {
    /// The directory itself.
    pub(crate) fn path(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }

    /// Opens it, making what is missing.
    pub(crate) fn open(path: &Path) -> Result<Self, StateError> {
        let path = std::path::absolute(path).map_err(io_error("find", path))?;
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(io_error("make", parent))?;
        }
        make_dir(rustix::fs::CWD, &path, &path)?;
        let state = open_own_dir(rustix::fs::CWD, &path, &path)?;
        let runs_path = path.join("runs");
        make_dir(&state, Path::new("runs"), &runs_path)?;
        let runs = open_own_dir(&state, Path::new("runs"), &runs_path)?;
        Ok(Self { path: runs_path, state, runs })
    }

    /// Opens it if it is there.
    pub(crate) fn open_existing(path: &Path) -> Result<Option<Self>, StateError> {
        match rustix::fs::statat(rustix::fs::CWD, path.join("runs"), AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => match std::fs::symlink_metadata(path) {
                Ok(metadata) if metadata.is_symlink() => Err(StateError::IsLink(path.to_owned())),
                _ => Ok(None),
            },
            _ => Self::open(path).map(Some),
        }
    }

    /// A program kept here between runs, to be executed through its descriptor; written if it is not there.
    /// All runs share its pages, and no keeper's end has to free them.
    pub(crate) fn program(&self, name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
        let open = || {
            rustix::fs::openat(
                &self.state,
                name,
                OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
                Mode::empty(),
            )
        };
        let whole = |file: &OwnedFd| {
            rustix::fs::fstat(file).is_ok_and(|stat| {
                stat.st_size == bytes.len() as i64
                    && stat.st_uid == rustix::process::geteuid().as_raw()
                    && stat.st_mode & 0o022 == 0
            })
        };
        if let Some(file) = open().ok().filter(whole) {
            return Ok(file);
        }
        let unfinished = format!("{name}.{}", std::process::id());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::openat(&self.state, &unfinished, flags, Mode::RWXU)?);
        let written = io::Write::write_all(&mut file, bytes);
        drop(file);
        let named =
            written.and_then(|()| Ok(rustix::fs::renameat(&self.state, &unfinished, &self.state, name)?));
        if let Err(error) = named {
            let _ = rustix::fs::unlinkat(&self.state, &unfinished, AtFlags::empty());
            return Err(error);
        }
        Ok(open()?)
    }

    /// Where such a program is, for systems that execute paths only.
    #[cfg(portable)]
    pub(crate) fn program_path(&self, name: &str) -> PathBuf {
        self.path.with_file_name(name)
    }

    /// A descriptor of the runs' directory whose lock is the turn to clear dead runs.
    pub(crate) fn turn(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.runs, ".", flags, Mode::empty())?)
    }

    /// Tells this state directory from others, also where it is mounted elsewhere.
    pub(crate) fn digest(&self) -> io::Result<u64> {
        let stat = rustix::fs::fstat(&self.state)?;
        Ok((stat.st_dev as u64).rotate_left(32) ^ stat.st_ino as u64)
    }

    /// The names of the runs on record, oldest first, and of those that are not yet.
    pub(crate) fn run_names(&self) -> Result<Vec<OsString>, StateError> {
        let entries = std::fs::read_dir(&self.path).map_err(io_error("list", &self.path))?;
        let mut names: Vec<_> =
            entries.flatten().map(|entry| entry.file_name()).filter(|name| name != SET_ASIDE).collect();
        names.sort();
        Ok(names)
    }

    /// Opens a run's directory; `None` if it has gone meanwhile.
    pub(crate) fn open_run(&self, name: &Path) -> Result<Option<RunDir>, StateError> {
        let path = self.path.join(name);
        hit("look.run").map_err(io_error("open", &path))?;
        match open_own_dir(&self.runs, name, &path) {
            Ok(dir) => Ok(Some(RunDir { path, dir })),
            Err(StateError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes a run's directory, locked. It appears under its name only when `fill` has succeeded.
    pub(crate) fn create_run(
        &self,
        name: &RunName,
        fill: impl FnOnce(&File) -> io::Result<()>,
    ) -> Result<(RunDir, OwnedFd), StateError> {
        let unborn = PathBuf::from(format!("{UNBORN}{}", name.run));
        let path = self.path.join(name.to_string());
        rustix::fs::mkdirat(&self.runs, &unborn, Mode::RWXU).map_err(io_error("make", &path))?;
        let made = (|| {
            let dir = open_own_dir(&self.runs, &unborn, &path)?;
            let lock = create_file(&dir, "lock", &path)?;
            rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)
                .map_err(io_error("lock", &path.join("lock")))?;
            let ledger = File::from(create_file(&dir, "ledger", &path)?);
            fill(&ledger).map_err(io_error("write", &path.join("ledger")))?;
            rustix::fs::renameat(&self.runs, &unborn, &self.runs, name.to_string())
                .map_err(io_error("name", &path))?;
            Ok((RunDir { path: path.clone(), dir }, lock))
        })();
        if made.is_err() {
            let _ = std::fs::remove_dir_all(self.path.join(&unborn));
        }
        made
    }

    /// Removes what the last keeper has set aside. It is not used again: whoever still has it open, as a reaper
    /// may, would take the next run for the one that he meant.
    pub(crate) fn remove_set_aside(&self) {
        let _ = std::fs::remove_dir_all(self.path.join(SET_ASIDE));
    }

    /// Removes what a host left that died while it made its directory. Nothing was ever started from it.
    pub(crate) fn remove_unborn(&self, name: &Path) {
        const LONG_AGO: std::time::Duration = std::time::Duration::from_hours(1);
        let path = self.path.join(name);
        let old = std::fs::symlink_metadata(&path)
            .and_then(|metadata| metadata.modified())
            .is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age > LONG_AGO));
        if old {
            let _ = std::fs::remove_dir_all(path);
        }
    }
}

/// Whether a name in `runs/` is of a run that is not yet.
pub(crate) fn is_unborn(name: &Path) -> bool {
    name.to_string_lossy().starts_with(UNBORN)
}

/// The run that such a name will be.
pub(crate) fn unborn_run(name: &Path) -> Option<RunId> {
    name.to_str()?.strip_prefix(UNBORN)?.parse().ok()
}

/// One run's directory.
#[derive(Debug)]
pub(crate) struct RunDir {
    path: PathBuf,
    dir: OwnedFd,
}

/// Whether somebody of the run holds its lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lock {
    Held,
    Free,
}

impl RunDir {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    #[cfg(not(portable))]
    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.dir
    }

    /// The ledger's bytes; `None` if there is no ledger.
    pub(crate) fn read_ledger(&self) -> io::Result<Option<Vec<u8>>> {
        use std::io::Read;
        hit("look.ledger")?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.dir, "ledger", flags, Mode::empty()) {
            Ok(file) => {
                let mut bytes = Vec::new();
                File::from(file).read_to_end(&mut bytes)?;
                Ok(Some(bytes))
            }
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The ledger, to be written while no keeper lives.
    pub(crate) fn ledger_for_writing(&self) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.dir, "ledger", flags, Mode::empty())?.into())
    }

    /// Looks at the lock without keeping it.
    pub(crate) fn lock(&self) -> io::Result<Lock> {
        hit("look.lock")?;
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.dir, "lock", flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(Lock::Free),
            Err(errno) => return Err(errno.into()),
        };
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(Lock::Free),
            Err(Errno::WOULDBLOCK) => Ok(Lock::Held),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Removes the run. The lock goes first: a directory with neither lock nor ledger is no run. Somebody who
    /// does the same at the same time is no harm.
    pub(crate) fn remove(&self) -> io::Result<()> {
        for name in ["lock", "ledger"] {
            let _ = rustix::fs::unlinkat(&self.dir, name, AtFlags::empty());
        }
        match std::fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether it is only what a removal has left that did not come to its end.
    pub(crate) fn is_empty_shell(&self) -> io::Result<bool> {
        for name in ["lock", "ledger"] {
            match rustix::fs::statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(_) => return Ok(false),
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(true)
    }

    pub(crate) fn exists(&self) -> io::Result<bool> {
        self.path.try_exists()
    }
}

fn make_dir(parent: impl AsFd, name: &Path, path: &Path) -> Result<(), StateError> {
    match rustix::fs::mkdirat(parent, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(io_error("make", path)(errno)),
    }
}

/// Opens a directory that must be ours alone.
fn open_own_dir(parent: impl AsFd, name: &Path, path: &Path) -> Result<OwnedFd, StateError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = match rustix::fs::openat(&parent, name, flags, Mode::empty()) {
        Ok(dir) => dir,
        Err(errno) => {
            let linked = rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_symlink());
            return Err(if linked {
                StateError::IsLink(path.to_owned())
            } else {
                io_error("open", path)(errno)
            });
        }
    };
    let stat = rustix::fs::fstat(&dir).map_err(io_error("look at", path))?;
    let own = rustix::process::geteuid().as_raw();
    if stat.st_uid != own {
        return Err(StateError::ForeignOwner { path: path.to_owned(), owner: stat.st_uid, own });
    }
    if stat.st_mode & 0o022 != 0 {
        return Err(StateError::TooOpen { path: path.to_owned(), mode: (stat.st_mode & 0o7777) as u32 });
    }
    Ok(dir)
}

fn create_file(dir: &OwnedFd, name: &str, path: &Path) -> Result<OwnedFd, StateError> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::RUSR | Mode::WUSR).map_err(io_error("make", &path.join(name)))
}
