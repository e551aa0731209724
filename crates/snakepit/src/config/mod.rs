//! Engines from a file: `snakepit.toml`, with the keys and defaults that `default.toml` lists.
//!
//! Owns the format of the file, and the keys that describe workers. All other keys and all defaults belong to the
//! settings themselves (`settings/`).

mod custody;
mod environment;
mod error;
mod foreign;
#[cfg(feature = "http")]
mod http;
#[cfg(all(feature = "loops", feature = "sqlite"))]
mod loops;
#[cfg(all(feature = "loops", feature = "sqlite"))]
mod service;
mod tables;
#[cfg(test)]
mod tests;

use std::path::Path;

pub use error::ConfigError;
#[cfg(all(feature = "loops", feature = "sqlite"))]
pub use loops::LoopConfig;
#[cfg(all(feature = "loops", feature = "sqlite"))]
pub use service::ServiceConfig;

use crate::custody::CustodyOptions;
use crate::telemetry::Logging;
use crate::{Builder, PoolOptions, Snakepit};
use snakepit_settings::SettingsTable;
use tables::Root;

/// The contents of a configuration file.
///
/// ```no_run
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pit = snakepit::Config::load("snakepit.toml")?.builder().start().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    pools: Vec<PoolOptions>,
    custody: CustodyOptions,
    logging: Logging,
    #[cfg(all(feature = "loops", feature = "sqlite"))]
    loops: Vec<LoopConfig>,
    #[cfg(all(feature = "loops", feature = "sqlite"))]
    service: ServiceConfig,
    #[cfg(all(feature = "loops", feature = "sqlite"))]
    path: std::path::PathBuf,
}

impl Config {
    /// Every key with its default and its meaning, as a file to read and to copy from.
    pub const REFERENCE: &str = include_str!("../../default.toml");

    /// Reads a file. Paths in it are relative to its directory.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
        Self::parse(&text, path)
    }

    /// Parses the text of a file at `path`, which need not exist.
    pub fn parse(text: &str, path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let root: Root = toml::Deserializer::parse(text)
            .map_err(|error| ConfigError::syntax(path, text, &error))
            .and_then(|file| {
                serde_path_to_error::deserialize(file)
                    .map_err(|error| ConfigError::content(path, text, &error))
            })?;
        if root.pool.is_empty() {
            return Err(ConfigError::without_pools(path));
        }
        let file = std::path::absolute(path)
            .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
        let dir = file.parent().unwrap_or(Path::new("/"));
        let pools: Vec<PoolOptions> =
            root.pool.into_iter().map(|(name, table)| table.into_pool(&name, dir)).collect();
        #[cfg(all(feature = "loops", feature = "sqlite"))]
        for (name, table) in &root.loops {
            let is_known = |pool: &String| pools.iter().any(|it| it.pool_name() == pool);
            if let Some(pool) = table.options.pool.as_ref().filter(|pool| !is_known(pool)) {
                return Err(ConfigError::unknown_pool(path, name, pool, &pools));
            }
        }
        let SettingsTable(foreign::Foreign(mut custody)) = root.custody;
        custody.state_dir = custody.state_dir.map(|path| dir.join(path));
        Ok(Self {
            pools,
            custody,
            logging: root.log,
            #[cfg(all(feature = "loops", feature = "sqlite"))]
            loops: root.loops.into_iter().map(|(name, table)| table.into_config(name, dir)).collect(),
            #[cfg(all(feature = "loops", feature = "sqlite"))]
            service: root.service.0,
            #[cfg(all(feature = "loops", feature = "sqlite"))]
            path: path.to_owned(),
        })
    }

    /// Returns the pools, in the order of the file.
    pub fn pools(&self) -> &[PoolOptions] {
        &self.pools
    }

    /// Returns the pool with this name.
    pub fn pool(&self, name: &str) -> Option<&PoolOptions> {
        self.pools.iter().find(|pool| pool.pool_name() == name)
    }

    /// Returns the names of the pools, in the order of the file.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.pools.iter().map(PoolOptions::pool_name)
    }

    /// Returns the loops, in the order of the file.
    #[cfg(all(feature = "loops", feature = "sqlite"))]
    pub fn loops(&self) -> &[LoopConfig] {
        &self.loops
    }

    /// Returns the loops with these names, in the same order, or all loops if no name is given.
    #[cfg(all(feature = "loops", feature = "sqlite"))]
    pub fn loops_named<S: AsRef<str>>(&self, names: &[S]) -> Result<Vec<LoopConfig>, ConfigError> {
        if self.loops.is_empty() {
            return Err(ConfigError::without_loops(&self.path));
        }
        if names.is_empty() {
            return Ok(self.loops.clone());
        }
        let find = |name: &S| {
            let found = self.loops.iter().find(|it| it.name() == name.as_ref()).cloned();
            found.ok_or_else(|| ConfigError::unknown_loop(&self.path, name.as_ref(), &self.loops))
        };
        names.iter().map(find).collect()
    }

    /// Returns how the loops run together.
    #[cfg(all(feature = "loops", feature = "sqlite"))]
    pub fn service(&self) -> &ServiceConfig {
        &self.service
    }

    /// Returns how processes are kept in custody.
    pub fn custody(&self) -> &CustodyOptions {
        &self.custody
    }

    /// Returns how much the engine logs.
    pub fn logging(&self) -> Logging {
        self.logging
    }

    /// Returns a builder with all settings of the file, to start an engine or to add tools first.
    pub fn builder(self) -> Builder {
        let builder = Snakepit::builder().custody(self.custody).logging(self.logging);
        self.pools.into_iter().fold(builder, Builder::pool)
    }
}
