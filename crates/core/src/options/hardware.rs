//! What a pool's workers get of the machine: devices, and a share of the cores.

use std::sync::Arc;

use super::PoolOptions;
use crate::adapter::StartError;
use crate::custody::Run;
use crate::environment::Environment;
use crate::hardware::{self, Gpus, Variable, of_device, of_threads};

/// Chooses the devices of a pool, and the share of the cores that its workers are told.
pub(crate) async fn equipped(mut pool: PoolOptions, run: Option<&Run>) -> Result<PoolOptions, StartError> {
    if !pool.adapter.starts_processes() {
        return Ok(pool);
    }
    if let Some(gpus) = pool.gpus.clone() {
        let chosen = hardware::choose(&gpus, run, &pool.name).await?;
        if gpus != Gpus::All {
            pool.devices = chosen.iter().map(|gpu| Arc::from(gpu.device())).collect();
            if !pool.workers_are_set {
                pool.workers = chosen.len();
            }
        }
    }
    let workers = pool.sizing.map_or(pool.workers, |sizing| sizing.max_workers);
    pool.thread_share = hardware::thread_share(pool.threads, workers);
    Ok(pool)
}

impl PoolOptions {
    /// Reports whether the pool's workers are processes, and not closures of the host.
    pub fn starts_processes(&self) -> bool {
        self.adapter.starts_processes()
    }

    /// Returns the Python environment of the workers, if they have one that can be prepared in advance.
    pub fn environment(&self) -> Option<&Environment> {
        self.adapter.environment()
    }

    /// Returns the environment variables of a worker with this device.
    pub(crate) fn variables(&self, device: Option<&str>) -> Vec<Variable> {
        let mut variables = self.gpus.as_ref().and(device).map_or_else(Vec::new, of_device);
        if let Some(threads) = self.thread_share {
            variables.extend(of_threads(threads, |name| std::env::var_os(name).is_some()));
        }
        variables
    }
}
