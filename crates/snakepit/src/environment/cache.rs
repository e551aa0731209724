//! Where environments are kept: for each key a lock, a mark once it is whole, and directories.
//!
//! ```text
//! KEY.lock          held alone by who makes or removes it, together by those who use it
//! KEY.env           the mark: names the one directory that is whole
//! KEY-RUN-1/venv/   the environment, at the path that its scripts know it by
//! ```
//!
//! Each attempt has a directory of a name that was never used before, so nothing that a dying host's process still writes can
//! reach an environment that is used or made by another. What no mark names is removed by the next who holds the lock.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::EnvironmentError;
use super::error::place;
use super::mark::Mark;
use crate::custody::{DirError, Owner, PrivateDir};

/// A directory of environments.
#[derive(Clone, Debug)]
pub struct Cache {
    dir: PathBuf,
}

/// An environment, or what is left of an attempt to make one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Entry {
    /// The name that its content has given it.
    pub key: String,
    /// How it stands with it.
    pub state: EntryState,
    /// What is known of it, once it was whole.
    pub kept: Option<Kept>,
    /// What it holds on the disk, in bytes.
    pub bytes: u64,
}

/// An environment that is whole.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Kept {
    /// The virtual environment.
    pub path: PathBuf,
    /// Its Python's version.
    pub python: String,
    /// What made it.
    pub tool: String,
    /// When it was made.
    pub made: SystemTime,
    /// When it was last asked for.
    pub used: SystemTime,
    /// What it was made of.
    pub recipe: String,
}

/// How it stands with an environment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum EntryState {
    /// Whole, and used by nobody at present.
    Ready,
    /// Whole, and held by a host.
    InUse,
    /// Somebody makes or removes it.
    Building,
    /// An attempt came to nothing; it is removed by the next one, or by [`Cache::prune`].
    Half,
}

impl EntryState {
    /// As a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::InUse => "in use",
            Self::Building => "building",
            Self::Half => "half",
        }
    }
}

/// What was removed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Pruned {
    /// Its key.
    pub key: String,
    /// What it held on the disk, in bytes.
    pub bytes: u64,
}

/// How a lock is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hold {
    Alone,
    Together,
}

/// A lock that is held until it is dropped, or its process is gone.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Cache {
    /// The one in this directory, which need not be there yet.
    pub fn at(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Where environments are kept unless something else is said: `envs` in `$SNAKEPIT_CACHE_DIR`, else in
    /// `$XDG_CACHE_HOME/snakepit`, else in `~/.cache/snakepit`.
    pub fn default_dir() -> Result<PathBuf, EnvironmentError> {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        // The XDG specification asks that relative paths be ignored.
        let usual = || {
            variable("XDG_CACHE_HOME")
                .filter(|path| path.is_absolute())
                .or_else(|| variable("HOME").map(|home| home.join(".cache")))
                .map(|base| base.join("snakepit"))
        };
        let dir = variable("SNAKEPIT_CACHE_DIR").or_else(usual).ok_or(EnvironmentError::NoPlace)?;
        let dir = dir.join("envs");
        std::path::absolute(&dir).map_err(place("find", dir))
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes the directory, and refuses one in which others could change something, or which they could swap: what lies there
    /// is run. Root may do that anyway, so what it has put into an image is good for all.
    pub(super) fn open(&self) -> Result<(), EnvironmentError> {
        PrivateDir::open(&self.dir, Owner::UsOrRoot).map(|_| ()).map_err(|error| self.refused(error))
    }

    /// The same for one that is not made; false if it is not there.
    fn open_existing(&self) -> Result<bool, EnvironmentError> {
        let opened = PrivateDir::open_existing(&self.dir, Owner::UsOrRoot);
        opened.map(|dir| dir.is_some()).map_err(|error| self.refused(error))
    }

    fn refused(&self, error: DirError) -> EnvironmentError {
        match error {
            DirError::Io { doing, path, source } => place(doing, path)(source),
            source => EnvironmentError::Foreign { dir: self.dir.clone(), source },
        }
    }

    fn lock_path(&self, key: &str) -> PathBuf {
        self.dir.join(format!("{key}.lock"))
    }

    pub(super) fn mark_path(&self, key: &str) -> PathBuf {
        self.dir.join(format!("{key}.env"))
    }

    /// The mark of an environment that is whole, and made of this.
    pub(super) fn mark_of(&self, key: &str, recipe: &str) -> Result<Option<Mark>, EnvironmentError> {
        let path = self.mark_path(key);
        let mark = Mark::read(&path).map_err(place("read", path))?;
        Ok(mark.filter(|mark| mark.recipe == recipe && self.venv(&mark.home).join("bin/python").exists()))
    }

    pub(super) fn venv(&self, home: &str) -> PathBuf {
        self.dir.join(home).join("venv")
    }

    /// Takes the lock of a key if nobody holds it in the way.
    pub(super) fn try_lock(&self, key: &str, hold: Hold) -> Result<Option<Lock>, EnvironmentError> {
        let path = self.lock_path(key);
        loop {
            let file = open_lock(&path).map_err(place("open the lock", &path))?;
            match try_hold(&file, hold) {
                Ok(()) if is_at(&file, &path) => return Ok(Some(Lock { _file: file })),
                // Removed meanwhile: the next one is at the same path.
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(place("lock", path)(error)),
            }
        }
    }

    /// Takes the lock of a key. A thread of its own waits, since only the lock itself tells when it is free: whoever gives
    /// up leaves nothing behind but that thread, which lets go at once.
    pub(super) async fn lock(&self, key: &str, hold: Hold) -> Result<Lock, EnvironmentError> {
        let path = self.lock_path(key);
        let (done, got) = tokio::sync::oneshot::channel();
        let at = path.clone();
        let wait = move || {
            let lock = loop {
                let held = open_lock(&at).and_then(|file| {
                    match hold {
                        Hold::Alone => file.lock(),
                        Hold::Together => file.lock_shared(),
                    }?;
                    Ok(file)
                });
                match held {
                    Ok(file) if is_at(&file, &at) => break Ok(Lock { _file: file }),
                    Ok(_) => {}
                    Err(error) => break Err(error),
                }
            };
            let _ = done.send(lock);
        };
        std::thread::Builder::new()
            .name("snakepit-lock".into())
            .spawn(wait)
            .map_err(place("wait for the lock", &path))?;
        got.await.map_err(|_| EnvironmentError::Runtime)?.map_err(place("lock", path))
    }

    /// The directories of a key, whole or not.
    fn homes(&self, key: &str) -> Vec<String> {
        let prefix = format!("{key}-");
        self.names().into_iter().filter(|name| name.starts_with(&prefix)).collect()
    }

    fn names(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(&self.dir) else { return Vec::new() };
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    /// A directory for one more attempt. What earlier ones left is removed. Only for who holds the lock alone.
    pub(super) fn begin(&self, key: &str, attempt: &str) -> Result<String, EnvironmentError> {
        self.clear(key, None);
        let home = format!("{key}-{attempt}");
        let path = self.dir.join(&home);
        fs::DirBuilder::new().mode(0o700).create(&path).map_err(place("make", path))?;
        Ok(home)
    }

    /// Removes all directories of a key but one. What a process that is about to die still writes may stay until the next
    /// time. Only for who holds the lock alone.
    pub(super) fn clear(&self, key: &str, kept: Option<&str>) {
        for home in self.homes(key).iter().filter(|home| Some(home.as_str()) != kept) {
            let _ = fs::remove_dir_all(self.dir.join(home));
        }
    }

    /// What is there, the last used first.
    pub fn list(&self) -> Result<Vec<Entry>, EnvironmentError> {
        if !self.open_existing()? {
            return Ok(Vec::new());
        }
        fs::read_dir(&self.dir).map_err(place("read", &self.dir))?;
        let mut entries = Vec::new();
        for key in self.keys() {
            let kept = self.kept(&key)?;
            let homes = self.homes(&key);
            let bytes = homes.iter().map(|home| size_of(&self.dir.join(home))).sum();
            let state = self.state_of(&key, kept.is_some());
            // A lock alone is nothing that anybody wants to know of.
            if kept.is_some() || !homes.is_empty() {
                entries.push(Entry { key, state, kept, bytes });
            }
        }
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.kept.as_ref().map(|kept| kept.used)));
        Ok(entries)
    }

    /// What is known of the environment of a key, if it is whole.
    fn kept(&self, key: &str) -> Result<Option<Kept>, EnvironmentError> {
        let path = self.mark_path(key);
        let mark = Mark::read(&path).map_err(place("read", &path))?;
        Ok(mark.filter(|mark| self.venv(&mark.home).exists()).map(|mark| Kept {
            path: self.venv(&mark.home),
            python: mark.python,
            tool: mark.tool,
            made: mark.made,
            used: fs::metadata(&path).and_then(|meta| meta.modified()).unwrap_or(mark.made),
            recipe: mark.recipe,
        }))
    }

    fn keys(&self) -> std::collections::BTreeSet<String> {
        let key = |name: &String| {
            let end = name.find(['-', '.'])?;
            let key = &name[..end];
            (key.len() == 20 && key.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| key.to_owned())
        };
        self.names().iter().filter_map(key).collect()
    }

    fn state_of(&self, key: &str, is_whole: bool) -> EntryState {
        let held = |hold| match File::open(self.lock_path(key)).map(|file| try_hold(&file, hold)) {
            Ok(Err(TryLockError::WouldBlock)) => true,
            Ok(Ok(()) | Err(TryLockError::Error(_))) | Err(_) => false,
        };
        match is_whole {
            _ if held(Hold::Together) => EntryState::Building,
            true if held(Hold::Alone) => EntryState::InUse,
            true => EntryState::Ready,
            false => EntryState::Half,
        }
    }

    /// Removes what nobody has asked for in so long, and what attempts have left. What a host holds stays.
    pub fn prune(&self, unused_for: Duration) -> Result<Vec<Pruned>, EnvironmentError> {
        let mut pruned = Vec::new();
        let is_due = |kept: &Kept| {
            // Of a time that is still to come, a clock was set back: it is as good as now.
            SystemTime::now().duration_since(kept.used).unwrap_or_default() >= unused_for
        };
        for Entry { key, kept, bytes, .. } in self.list()? {
            if !kept.as_ref().is_none_or(is_due) {
                continue;
            }
            let Some(_lock) = self.try_lock(&key, Hold::Alone)? else { continue };
            // Somebody may have made or used it, and ended, since the list was made.
            if !self.kept(&key)?.as_ref().is_none_or(is_due) {
                continue;
            }
            // The mark first: what it names is whole as long as it is there.
            let mark = self.mark_path(&key);
            remove_file(&mark).map_err(place("remove", mark))?;
            self.clear(&key, None);
            let _ = fs::remove_file(self.mark_path(&key).with_extension("draft"));
            // Whoever waits for this lock sees that it is gone and takes the next one.
            let lock = self.lock_path(&key);
            remove_file(&lock).map_err(place("remove", lock))?;
            pruned.push(Pruned { key, bytes });
        }
        self.drop_spare_locks()?;
        Ok(pruned)
    }
}

impl Cache {
    /// Locks of environments that could not be made.
    fn drop_spare_locks(&self) -> Result<(), EnvironmentError> {
        for key in self.keys() {
            let is_spare = || !self.mark_path(&key).exists() && self.homes(&key).is_empty();
            if is_spare()
                && let Some(_lock) = self.try_lock(&key, Hold::Alone)?
                && is_spare()
            {
                let path = self.lock_path(&key);
                remove_file(&path).map_err(place("remove", path))?;
            }
        }
        Ok(())
    }
}

fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Where nothing can be written, as in an image, a lock that is there does as well: it is the file that is locked, not its content.
fn open_lock(path: &Path) -> io::Result<File> {
    let written =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
    match written {
        Err(error) if is_for_readers(&error) => File::open(path).map_err(|_| error),
        written => written,
    }
}

fn is_for_readers(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied)
}

fn try_hold(file: &File, hold: Hold) -> Result<(), TryLockError> {
    match hold {
        Hold::Alone => file.try_lock(),
        Hold::Together => file.try_lock_shared(),
    }
}

/// Whether the file is still the one at this path.
fn is_at(file: &File, path: &Path) -> bool {
    let id = |meta: fs::Metadata| (meta.dev(), meta.ino());
    file.metadata().ok().map(id) == fs::metadata(path).ok().map(id)
}

/// What a directory holds on the disk. Files that are linked elsewhere, as `uv` does it, count as well.
fn size_of(path: &Path) -> u64 {
    let Ok(meta) = path.symlink_metadata() else { return 0 };
    let own = meta.blocks() * 512;
    if !meta.is_dir() {
        return own;
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    own + entries.map(|entry| size_of(&entry.path())).sum::<u64>()
}
