//! The cache of environments. Each key has a lock, directories, and a manifest once its environment is complete.
//!
//! ```text
//! KEY.lock          exclusive while the environment is built or removed, shared while it is used
//! KEY.env           the manifest: names the one directory that is complete
//! KEY-RUN-1/venv/   the environment, at the path that its scripts know
//! ```
//!
//! Each attempt gets a directory with a new name, so a process of a dying host can never write into an environment
//! that another host uses or builds. The next holder of the lock removes the directories that no manifest names.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::EnvironmentError;
use super::error::cannot;
use super::manifest::{Manifest, wall_now};
use snakepit_custody::{DirError, Owner, PrivateDir};

/// A directory of environments.
///
/// ```no_run
/// use std::time::Duration;
///
/// use snakepit::environment::{Cache, EnvironmentError};
///
/// # fn example() -> Result<(), EnvironmentError> {
/// let cache = Cache::at(Cache::default_dir()?);
/// for environment in cache.list()? {
///     println!("{} {}: {} bytes", environment.key, environment.state.as_str(), environment.bytes);
/// }
/// let pruned = cache.prune(Duration::from_hours(30 * 24))?;
/// println!("{} environments were removed", pruned.len());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Cache {
    dir: PathBuf,
}

/// An environment in the cache, or the remains of a failed build.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CachedEnvironment {
    /// The name of the environment: a hash of its content.
    pub key: String,
    /// Its state.
    pub state: CachedEnvironmentState,
    /// Its details, if it is complete.
    pub kept: Option<EnvironmentDetails>,
    /// Its size on disk, in bytes.
    pub bytes: u64,
}

/// The details of a complete environment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EnvironmentDetails {
    /// The virtual environment.
    pub path: PathBuf,
    /// The version of its Python.
    pub python: String,
    /// The tool that built it, with its version.
    pub tool: String,
    /// When it was built.
    pub made: SystemTime,
    /// When it was last used.
    pub used: SystemTime,
    /// What it was built from.
    pub recipe: String,
}

/// The state of an environment in the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CachedEnvironmentState {
    /// Complete, and not in use.
    Ready,
    /// Complete, and in use by a host.
    InUse,
    /// A host builds or removes it.
    Building,
    /// A build failed. The next build or [`Cache::prune`] removes its remains.
    Half,
}

impl CachedEnvironmentState {
    /// Returns the name of the state.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::InUse => "in use",
            Self::Building => "building",
            Self::Half => "half",
        }
    }
}

/// An environment that [`Cache::prune`] removed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Pruned {
    /// Its key.
    pub key: String,
    /// Its size on disk, in bytes.
    pub bytes: u64,
}

/// How a lock is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LockMode {
    Exclusive,
    Shared,
}

/// A lock, held until this value is dropped or the process ends.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Cache {
    /// Returns the cache in this directory, which need not exist.
    pub fn at(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Returns the default directory: `envs` in `$SNAKEPIT_CACHE_DIR`, or else in `$XDG_CACHE_HOME/snakepit`, or else
    /// in `~/.cache/snakepit`.
    pub fn default_dir() -> Result<PathBuf, EnvironmentError> {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        // The XDG specification requires that relative paths be ignored.
        let usual = || {
            variable("XDG_CACHE_HOME")
                .filter(|path| path.is_absolute())
                .or_else(|| variable("HOME").map(|home| home.join(".cache")))
                .map(|base| base.join("snakepit"))
        };
        let dir = variable("SNAKEPIT_CACHE_DIR").or_else(usual).ok_or(EnvironmentError::NoPlace)?;
        let dir = dir.join("envs");
        std::path::absolute(&dir).map_err(cannot("find", dir))
    }

    /// Returns the directory of the cache.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Creates the directory. Rejects a directory that other users could change or replace, because the host runs
    /// programs in it. Root can do that anyway, so a directory of root, as in an image, is accepted.
    pub(super) fn open(&self) -> Result<(), EnvironmentError> {
        PrivateDir::open(&self.dir, Owner::UsOrRoot).map(|_| ()).map_err(|error| self.refused(error))
    }

    /// Like [`Cache::open`], but does not create the directory. Returns `false` if it does not exist.
    fn open_existing(&self) -> Result<bool, EnvironmentError> {
        let opened = PrivateDir::open_existing(&self.dir, Owner::UsOrRoot);
        opened.map(|dir| dir.is_some()).map_err(|error| self.refused(error))
    }

    fn refused(&self, error: DirError) -> EnvironmentError {
        match error {
            DirError::Io { doing, path, source } => cannot(doing, path)(source),
            source => EnvironmentError::Foreign { dir: self.dir.clone(), source },
        }
    }

    fn lock_path(&self, key: &str) -> PathBuf {
        self.dir.join(format!("{key}.lock"))
    }

    pub(super) fn manifest_path(&self, key: &str) -> PathBuf {
        self.dir.join(format!("{key}.env"))
    }

    /// Returns the manifest of the environment with this recipe, if it is complete.
    pub(super) fn manifest_of(&self, key: &str, recipe: &str) -> Result<Option<Manifest>, EnvironmentError> {
        let path = self.manifest_path(key);
        let manifest = Manifest::read(&path).map_err(cannot("read", path))?;
        let is_usable = |manifest: &Manifest| {
            manifest.recipe == recipe && self.venv(&manifest.home).join("bin/python").exists()
        };
        Ok(manifest.filter(is_usable))
    }

    pub(super) fn venv(&self, home: &str) -> PathBuf {
        self.dir.join(home).join("venv")
    }

    /// Acquires the lock of a key if it is free.
    pub(super) fn try_lock(&self, key: &str, mode: LockMode) -> Result<Option<Lock>, EnvironmentError> {
        let path = self.lock_path(key);
        loop {
            let file = open_lock(&path).map_err(cannot("open the lock", &path))?;
            match try_lock(&file, mode) {
                Ok(()) if is_at(&file, &path) => return Ok(Some(Lock { _file: file })),
                // The file was removed in the meantime. The next attempt creates a new one.
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(cannot("lock", path)(error)),
            }
        }
    }

    /// Waits for the lock of a key. A separate thread waits, because the system has no other way. If this future is
    /// dropped, the thread releases the lock as soon as it gets it.
    pub(super) async fn lock(&self, key: &str, mode: LockMode) -> Result<Lock, EnvironmentError> {
        let path = self.lock_path(key);
        let (done, got) = tokio::sync::oneshot::channel();
        let file_path = path.clone();
        let wait = move || {
            let lock = loop {
                let held = open_lock(&file_path).and_then(|file| {
                    match mode {
                        LockMode::Exclusive => file.lock(),
                        LockMode::Shared => file.lock_shared(),
                    }?;
                    Ok(file)
                });
                match held {
                    Ok(file) if is_at(&file, &file_path) => break Ok(Lock { _file: file }),
                    Ok(_) => {}
                    Err(error) => break Err(error),
                }
            };
            let _ = done.send(lock);
        };
        std::thread::Builder::new()
            .name("snakepit-lock".into())
            .spawn(wait)
            .map_err(cannot("wait for the lock", &path))?;
        got.await.map_err(|_| EnvironmentError::Runtime)?.map_err(cannot("lock", path))
    }

    /// Returns the directories of a key, complete or not.
    fn homes(&self, key: &str) -> Vec<String> {
        let prefix = format!("{key}-");
        self.names().into_iter().filter(|name| name.starts_with(&prefix)).collect()
    }

    fn names(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(&self.dir) else { return Vec::new() };
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    /// Creates the directory of a build, and removes those of earlier builds. The caller holds the exclusive lock.
    pub(super) fn create_home(&self, key: &str, attempt: &str) -> Result<String, EnvironmentError> {
        self.clear(key);
        let home = format!("{key}-{attempt}");
        let path = self.dir.join(&home);
        fs::DirBuilder::new().mode(0o700).create(&path).map_err(cannot("make", path))?;
        Ok(home)
    }

    /// Removes all directories of a key. Files that a dying process writes meanwhile may remain until the next time.
    /// The caller holds the exclusive lock.
    pub(super) fn clear(&self, key: &str) {
        for home in self.homes(key) {
            let _ = fs::remove_dir_all(self.dir.join(home));
        }
    }

    /// Lists the environments, the most recently used first.
    pub fn list(&self) -> Result<Vec<CachedEnvironment>, EnvironmentError> {
        if !self.open_existing()? {
            return Ok(Vec::new());
        }
        fs::read_dir(&self.dir).map_err(cannot("read", &self.dir))?;
        let mut entries = Vec::new();
        for key in self.keys() {
            let kept = self.kept(&key)?;
            let homes = self.homes(&key);
            let bytes = homes.iter().map(|home| size_of(&self.dir.join(home))).sum();
            let state = self.state_of(&key, kept.is_some());
            // A lock alone is not an environment.
            if kept.is_some() || !homes.is_empty() {
                entries.push(CachedEnvironment { key, state, kept, bytes });
            }
        }
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.kept.as_ref().map(|kept| kept.used)));
        Ok(entries)
    }

    /// Returns the details of the environment of a key, if it is complete.
    fn kept(&self, key: &str) -> Result<Option<EnvironmentDetails>, EnvironmentError> {
        let path = self.manifest_path(key);
        let manifest = Manifest::read(&path).map_err(cannot("read", &path))?;
        Ok(manifest.filter(|manifest| self.venv(&manifest.home).exists()).map(|manifest| {
            EnvironmentDetails {
                path: self.venv(&manifest.home),
                python: manifest.python,
                tool: manifest.tool,
                made: manifest.made,
                used: fs::metadata(&path).and_then(|meta| meta.modified()).unwrap_or(manifest.made),
                recipe: manifest.recipe,
            }
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

    fn state_of(&self, key: &str, is_complete: bool) -> CachedEnvironmentState {
        let is_locked_against = |mode| match File::open(self.lock_path(key)).map(|file| try_lock(&file, mode))
        {
            Ok(Err(TryLockError::WouldBlock)) => true,
            Ok(Ok(()) | Err(TryLockError::Error(_))) | Err(_) => false,
        };
        match is_complete {
            _ if is_locked_against(LockMode::Shared) => CachedEnvironmentState::Building,
            true if is_locked_against(LockMode::Exclusive) => CachedEnvironmentState::InUse,
            true => CachedEnvironmentState::Ready,
            false => CachedEnvironmentState::Half,
        }
    }

    /// Removes environments that have not been used for this long, and the remains of failed builds. Environments in
    /// use stay.
    pub fn prune(&self, unused_for: Duration) -> Result<Vec<Pruned>, EnvironmentError> {
        let mut pruned = Vec::new();
        let is_due = |kept: &EnvironmentDetails| {
            // A time in the future means that the clock was set back. It counts as now.
            wall_now().duration_since(kept.used).unwrap_or_default() >= unused_for
        };
        for CachedEnvironment { key, kept, bytes, .. } in self.list()? {
            if !kept.as_ref().is_none_or(is_due) {
                continue;
            }
            let Some(_lock) = self.try_lock(&key, LockMode::Exclusive)? else { continue };
            // A host may have built or used the environment since it was listed.
            if !self.kept(&key)?.as_ref().is_none_or(is_due) {
                continue;
            }
            // The manifest is removed first: while it exists, its environment must be complete.
            let manifest = self.manifest_path(&key);
            remove_file(&manifest).map_err(cannot("remove", &manifest))?;
            self.clear(&key);
            let _ = fs::remove_file(manifest.with_extension("draft"));
            // A host that waits for this lock notices that the file is gone, and locks the next one.
            let lock = self.lock_path(&key);
            remove_file(&lock).map_err(cannot("remove", lock))?;
            pruned.push(Pruned { key, bytes });
        }
        self.remove_unused_locks()?;
        Ok(pruned)
    }

    /// Removes the locks of environments that could not be built.
    fn remove_unused_locks(&self) -> Result<(), EnvironmentError> {
        for key in self.keys() {
            let is_unused = || !self.manifest_path(&key).exists() && self.homes(&key).is_empty();
            if is_unused()
                && let Some(_lock) = self.try_lock(&key, LockMode::Exclusive)?
                && is_unused()
            {
                let path = self.lock_path(&key);
                remove_file(&path).map_err(cannot("remove", path))?;
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

/// Opens a lock file. An existing file can be locked even if nothing can be written, as in an image.
fn open_lock(path: &Path) -> io::Result<File> {
    let written =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
    match written {
        Err(error) if is_read_only(&error) => File::open(path).map_err(|_| error),
        written => written,
    }
}

fn is_read_only(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied)
}

fn try_lock(file: &File, mode: LockMode) -> Result<(), TryLockError> {
    match mode {
        LockMode::Exclusive => file.try_lock(),
        LockMode::Shared => file.try_lock_shared(),
    }
}

/// Reports whether the file is still the one at this path.
fn is_at(file: &File, path: &Path) -> bool {
    let id = |meta: fs::Metadata| (meta.dev(), meta.ino());
    file.metadata().ok().map(id) == fs::metadata(path).ok().map(id)
}

/// Returns the size of a directory on disk. Files that `uv` hard-links into it count, too.
fn size_of(path: &Path) -> u64 {
    let Ok(meta) = path.symlink_metadata() else { return 0 };
    let own = meta.blocks() * 512;
    if !meta.is_dir() {
        return own;
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    own + entries.map(|entry| size_of(&entry.path())).sum::<u64>()
}
