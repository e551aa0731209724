//! Finds an environment in the cache, or builds it: one host builds, and the others wait.
//!
//! ```text
//! shared lock ── manifest? ── yes ──► used; the lock is held until the last user ends
//!      ▲             └─ no ──► exclusive lock ── manifest? ── no ──► built, manifest written ──┐
//!      └───────────────────────────────────────────┴─ yes ─────────────────────────────────────┘
//! ```

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

use super::build_steps::{BuildSteps, emit_progress};
use super::cache::{Cache, Lock, LockMode};
use super::error::cannot;
use super::manifest::{Manifest, wall_now};
use super::python::{Identity, Python};
use super::recipe::Recipe;
use super::{Environment, EnvironmentError, HelperRunner, Packages, find, identify};
use snakepit_custody::Run;
use snakepit_telemetry::{Event, Level, emit, emit_with};

/// A complete environment. It is not pruned while this value exists.
#[derive(Debug)]
#[must_use = "the environment may be pruned once this is dropped"]
#[non_exhaustive]
pub struct Built {
    /// The interpreter.
    pub python: PathBuf,
    /// The virtual environment.
    pub path: PathBuf,
    /// The name of the environment in the cache: a hash of its content.
    pub key: String,
    /// Whether it was built now.
    pub is_new: bool,
    _lock: Lock,
}

impl Environment {
    /// Finds the environment in the cache, or builds it. The tools run as processes of `run`, and events name the
    /// `owner`. Returns `None` if there is nothing to install.
    ///
    /// ```no_run
    /// use snakepit::custody::Run;
    /// use snakepit::environment::{Environment, EnvironmentError};
    ///
    /// # async fn example(run: &Run) -> Result<(), EnvironmentError> {
    /// let environment = Environment::new().requirements(["numpy>=2"]);
    /// if let Some(built) = environment.build(run, "setup").await? {
    ///     println!("{} has the packages", built.python.display());
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn build(&self, run: &Run, owner: &str) -> Result<Option<Built>, EnvironmentError> {
        let helpers = HelperRunner::new(run.clone(), owner, self.base()).env(&self.variables);
        self.obtain(&helpers).await
    }

    /// Like [`Environment::build`], with existing helpers.
    pub async fn obtain(&self, helpers: &HelperRunner) -> Result<Option<Built>, EnvironmentError> {
        let Some(packages) = &self.packages else { return Ok(None) };
        let pool = &helpers.owner;
        let began = Instant::now();
        let built = self.find_or_build(packages, helpers).await;
        match &built {
            Ok(built) => emit_with(Level::Info, || Event::EnvironmentReady {
                pool: Arc::clone(pool),
                key: built.key.as_str().into(),
                path: built.path.to_string_lossy().into(),
                made: built.is_new,
                took: began.elapsed(),
            }),
            Err(error) => {
                emit(Event::EnvironmentFailed { pool: Arc::clone(pool), reason: error.to_string().into() });
            }
        }
        built.map(Some)
    }

    async fn find_or_build(
        &self,
        packages: &Packages,
        helpers: &HelperRunner,
    ) -> Result<Built, EnvironmentError> {
        if let Some(Python::Path(path)) = &self.python
            && helpers.dir().join(path).is_dir()
        {
            return Err(EnvironmentError::NotOurs(path.clone()));
        }
        let python = find(self.python.as_ref(), helpers).await?;
        let identity = identify(&python, helpers).await?;
        let recipe = self.read(packages, &identity).await?;
        let cache = Cache::at(match &self.cache {
            Some(dir) => self.base().join(dir),
            None => Cache::default_dir()?,
        });
        cache.open()?;
        let key = recipe.key();
        let mut is_new = false;
        loop {
            let lock = self.locked(&cache, &key, LockMode::Shared, helpers).await?;
            if let Some(manifest) = cache.manifest_of(&key, &recipe.text)? {
                // If this fails, `prune` may remove the environment a little early.
                let _ = Manifest::touch(&cache.manifest_path(&key));
                let path = cache.venv(&manifest.home);
                return Ok(Built { python: path.join("bin/python"), path, key, is_new, _lock: lock });
            }
            drop(lock);
            let lock = Arc::new(self.locked(&cache, &key, LockMode::Exclusive, helpers).await?);
            if cache.manifest_of(&key, &recipe.text)?.is_none() {
                self.build_locked(packages, &identity, &recipe, &cache, &lock, helpers).await?;
                is_new = true;
            }
            // Between this lock and the next, `prune` may remove the environment. It is then built again.
            drop(lock);
        }
    }

    /// Reads the recipe on a blocking thread, because it may consist of many files.
    async fn read(&self, packages: &Packages, identity: &Identity) -> Result<Recipe, EnvironmentError> {
        let (environment, packages, identity) = (self.clone(), packages.clone(), identity.clone());
        on_blocking_thread(move || Recipe::read(&environment, &packages, &identity)).await?
    }

    /// Builds under the exclusive lock. The threads that work with files hold the lock, too, because they continue if
    /// this future is dropped.
    async fn build_locked(
        &self,
        packages: &Packages,
        identity: &Identity,
        recipe: &Recipe,
        cache: &Cache,
        lock: &Arc<Lock>,
        helpers: &HelperRunner,
    ) -> Result<(), EnvironmentError> {
        static ATTEMPTS: AtomicU64 = AtomicU64::new(1);
        let key = recipe.key();
        // The id of the run is unique, and its last digits are random.
        let run = helpers.run_id().to_string();
        let attempt = format!("{}-{}", &run[run.len() - 12..], ATTEMPTS.fetch_add(1, Ordering::Relaxed));
        let home = on_blocking_thread({
            let (cache, key, lock) = (cache.clone(), key.clone(), Arc::clone(lock));
            move || {
                let _lock = lock;
                cache.create_home(&key, &attempt)
            }
        })
        .await??;
        let venv = cache.venv(&home);
        let began = Instant::now();
        let steps =
            BuildSteps { environment: self, identity, recipe, helpers, venv: &venv, key: &key, began };
        let built = match steps.run().await {
            Ok(tool) => match self.read(packages, identity).await {
                Ok(again) if again.text == recipe.text => Ok(tool),
                Ok(_) => Err(EnvironmentError::Changed),
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        let (cache, recipe, python) = (cache.clone(), recipe.text.clone(), identity.version.clone());
        let lock = Arc::clone(lock);
        on_blocking_thread(move || {
            let _lock = lock;
            let tool = built.inspect_err(|_| cache.clear(&key))?;
            let manifest = Manifest { home, python, tool, made: wall_now(), recipe };
            let path = cache.manifest_path(&key);
            manifest.write(&path).map_err(cannot("write", path))
        })
        .await?
    }

    /// Waits for the lock of a key. Another host's build gets no more time than our own would.
    async fn locked(
        &self,
        cache: &Cache,
        key: &str,
        mode: LockMode,
        helpers: &HelperRunner,
    ) -> Result<Lock, EnvironmentError> {
        if let Some(lock) = cache.try_lock(key, mode)? {
            return Ok(lock);
        }
        emit_progress(&helpers.owner, key, 0, "waiting: another host is building it");
        tokio::time::timeout(self.timeout, cache.lock(key, mode)).await.map_err(|_| {
            EnvironmentError::Timeout {
                step: "waiting for another host to build it".into(),
                after: self.timeout,
                output: Vec::new(),
            }
        })?
    }
}

async fn on_blocking_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, EnvironmentError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| EnvironmentError::Runtime)
}
