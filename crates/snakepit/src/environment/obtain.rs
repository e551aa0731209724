//! An environment that is there already, or is made now: by one host, while the others wait.
//!
//! ```text
//! held together ── mark? ── yes ──► used, and held until whoever uses it ends
//!       ▲           └─ no ──► held alone ── mark? ── no ──► made, marked ──┐
//!       └──────────────────────────────────┴─ yes ──────────────────────────┘
//! ```

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use tokio::time::Instant;

use super::cache::{Cache, Hold, Lock};
use super::error::place;
use super::mark::Mark;
use super::python::{Identity, Python};
use super::recipe::Recipe;
use super::{Environment, EnvironmentError, Errands, Needs, find, identify, making};
use crate::call::waiting::after;
use crate::custody::Run;
use crate::telemetry::{Event, Level, emit, emit_with};

/// An environment that is whole. It is not pruned while this is held.
#[derive(Debug)]
#[must_use = "it may be pruned once this is dropped"]
pub struct Built {
    /// Its interpreter.
    pub python: PathBuf,
    /// The virtual environment.
    pub path: PathBuf,
    /// The name that its content has given it.
    pub key: String,
    /// Whether it was made now, and not there before.
    pub is_new: bool,
    _lock: Lock,
}

impl Environment {
    /// Finds the environment, or makes it; the processes that are needed belong to the run, and `owner` is for whom it is, as
    /// events tell. `None` if it installs nothing.
    pub async fn build(&self, run: &Run, owner: &str) -> Result<Option<Built>, EnvironmentError> {
        let errands = Errands::new(run.clone(), owner, self.base()).env(&self.variables);
        self.obtain(&errands).await
    }

    pub(crate) async fn obtain(&self, errands: &Errands) -> Result<Option<Built>, EnvironmentError> {
        let Some(needs) = &self.needs else { return Ok(None) };
        let pool = &errands.owner;
        let began = Instant::now();
        let built = self.find_or_make(needs, errands).await;
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

    async fn find_or_make(&self, needs: &Needs, errands: &Errands) -> Result<Built, EnvironmentError> {
        if let Some(Python::Path(path)) = &self.python
            && errands.dir().join(path).is_dir()
        {
            return Err(EnvironmentError::NotOurs(path.clone()));
        }
        let python = find(self.python.as_ref(), errands).await?;
        let identity = identify(&python, errands).await?;
        let recipe = self.read(needs, &identity).await?;
        let cache = Cache::at(match &self.cache {
            Some(dir) => self.base().join(dir),
            None => Cache::default_dir()?,
        });
        cache.open()?;
        let key = recipe.key();
        let mut is_new = false;
        loop {
            let lock = self.held(&cache, &key, Hold::Together, errands).await?;
            if let Some(mark) = cache.mark_of(&key, &recipe.text)? {
                // For `prune`, which may come a little early if this cannot be noted.
                let _ = Mark::touch(&cache.mark_path(&key));
                let path = cache.venv(&mark.home);
                return Ok(Built { python: path.join("bin/python"), path, key, is_new, _lock: lock });
            }
            drop(lock);
            let lock = Arc::new(self.held(&cache, &key, Hold::Alone, errands).await?);
            if cache.mark_of(&key, &recipe.text)?.is_none() {
                self.make(needs, &identity, &recipe, &cache, &lock, errands).await?;
                is_new = true;
            }
            // Between this lock and the next one it may be pruned: then it is made once more.
            drop(lock);
        }
    }

    /// Files are read, which may be many.
    async fn read(&self, needs: &Needs, identity: &Identity) -> Result<Recipe, EnvironmentError> {
        let (environment, needs, identity) = (self.clone(), needs.clone(), identity.clone());
        let read = tokio::task::spawn_blocking(move || Recipe::read(&environment, &needs, &identity));
        read.await.map_err(|_| EnvironmentError::Runtime)?
    }

    /// Under the lock that is held alone. Threads that work with files hold it as well: they go on when nobody waits for them
    /// any more.
    async fn make(
        &self,
        needs: &Needs,
        identity: &Identity,
        recipe: &Recipe,
        cache: &Cache,
        lock: &Arc<Lock>,
        errands: &Errands,
    ) -> Result<(), EnvironmentError> {
        static ATTEMPTS: AtomicU64 = AtomicU64::new(1);
        let key = recipe.key();
        // The run's number is nobody else's, and its last digits are random.
        let run = errands.run_id().to_string();
        let attempt = format!("{}-{}", &run[run.len() - 12..], ATTEMPTS.fetch_add(1, Ordering::Relaxed));
        let home = in_thread({
            let (cache, key, lock) = (cache.clone(), key.clone(), Arc::clone(lock));
            move || {
                let _lock = lock;
                cache.begin(&key, &attempt)
            }
        })
        .await??;
        let venv = cache.venv(&home);
        let until = after(Instant::now(), self.timeout);
        let making =
            making::Making { environment: self, identity, recipe, errands, venv: &venv, key: &key, until };
        let made = match making.run().await {
            Ok(tool) => match self.read(needs, identity).await {
                Ok(again) if again.text == recipe.text => Ok(tool),
                Ok(_) => Err(EnvironmentError::Changed),
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        let (cache, recipe, python) = (cache.clone(), recipe.text.clone(), identity.version.clone());
        let lock = Arc::clone(lock);
        in_thread(move || {
            let _lock = lock;
            let tool = made.inspect_err(|_| cache.clear(&key, None))?;
            let mark = Mark { home, python, tool, made: SystemTime::now(), recipe };
            let path = cache.mark_path(&key);
            mark.write(&path).map_err(place("write", path))
        })
        .await?
    }
}

impl Environment {
    /// The lock of a key, once nobody is in the way. Another host's work has no more time than our own would.
    async fn held(
        &self,
        cache: &Cache,
        key: &str,
        hold: Hold,
        errands: &Errands,
    ) -> Result<Lock, EnvironmentError> {
        if let Some(lock) = cache.try_lock(key, hold)? {
            return Ok(lock);
        }
        making::tell(&errands.owner, key, 0, "another host makes it: waiting");
        tokio::time::timeout(self.timeout, cache.lock(key, hold)).await.map_err(|_| {
            EnvironmentError::Timeout {
                step: "another host makes it".into(),
                after: self.timeout,
                output: Vec::new(),
            }
        })?
    }
}

async fn in_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, EnvironmentError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| EnvironmentError::Runtime)
}
