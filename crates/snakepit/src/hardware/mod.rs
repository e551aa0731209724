//! What the machine has for workers: cores and GPUs, found without loading anybody's driver or framework.
//!
//! `cpu.rs`, `cuda.rs` and `rocm.rs` read what the system tells in files, so they can be shown another machine by another
//! root; `assign.rs` turns it into variables of single workers. A pool that asks for no GPU has only its cores counted.

mod assign;
mod cpu;
mod cuda;
mod rocm;

use std::fmt;
use std::path::Path;

pub use assign::{Gpus, Threads};
pub(crate) use assign::{Variable, equipped, given};
pub use cpu::Cpu;

/// What was found.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Hardware {
    /// The cores.
    pub cpu: Cpu,
    /// The GPUs that this process may use, whatever the variables of its environment say about them.
    pub gpus: Vec<Gpu>,
}

/// A GPU.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Gpu {
    /// Whose it is.
    pub kind: GpuKind,
    /// What it is called in `CUDA_VISIBLE_DEVICES` or `HIP_VISIBLE_DEVICES`.
    pub id: String,
    /// Its model, if that can be told.
    pub model: Option<String>,
}

/// How a GPU is spoken to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum GpuKind {
    /// NVIDIA's.
    Cuda,
    /// AMD's.
    Rocm,
    /// Apple's.
    Mps,
}

impl GpuKind {
    /// As the name of a device begins.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Rocm => "hip",
            Self::Mps => "mps",
        }
    }
}

impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.device())?;
        match &self.model {
            Some(model) => write!(f, " ({model})"),
            None => Ok(()),
        }
    }
}

impl Gpu {
    /// Its name among the devices of a pool.
    pub fn device(&self) -> String {
        match self.kind {
            GpuKind::Mps => "mps".into(),
            kind => format!("{}:{}", kind.as_str(), self.id),
        }
    }
}

impl Hardware {
    /// Looks at this machine. Only files are read; where NVIDIA's driver tells nothing in files, as under WSL, ask
    /// `nvidia-smi` with [`NVIDIA_SMI`] and give its answer to [`Hardware::with_nvidia_smi`].
    pub fn look() -> Self {
        Self::look_in(Path::new("/"), (std::env::consts::OS, std::env::consts::ARCH))
    }

    fn look_in(root: &Path, (system, processor): (&str, &str)) -> Self {
        let mut gpus = cuda::look(root);
        gpus.extend(rocm::look(root));
        // Each of Apple's own processors has one.
        if (system, processor) == ("macos", "aarch64") {
            gpus.push(Gpu { kind: GpuKind::Mps, id: "0".into(), model: None });
        }
        Self { cpu: Cpu::look_in(root), gpus }
    }

    /// Adds what `nvidia-smi` has said, if no GPU of NVIDIA was found before.
    #[must_use]
    pub fn with_nvidia_smi(mut self, answer: &str) -> Self {
        if !self.gpus.iter().any(|gpu| gpu.kind == GpuKind::Cuda) {
            self.gpus.extend(cuda::read_smi(answer));
        }
        self
    }
}

/// The arguments with which `nvidia-smi` tells what [`Hardware::with_nvidia_smi`] reads.
pub const NVIDIA_SMI: [&str; 2] = ["--query-gpu=index,name", "--format=csv,noheader"];

#[cfg(test)]
mod tests;
