//! The cores and GPUs of the machine, and their assignment to workers.
//!
//! This module only reads files. It loads no driver and no framework, and knows no pool and no worker. The files, in
//! the order in which a pool uses them:
//!
//! - `cpu.rs`, `cuda.rs`, `rocm.rs`: the system's reports, in files below a root, which tests replace by a directory;
//! - `assignment.rs`: the GPUs that a pool uses, and the variables that a worker gets.

mod assignment;
mod cpu;
mod cuda;
#[cfg(feature = "config")]
mod notation;
mod rocm;

use std::fmt;
use std::path::Path;

pub use assignment::{GpuError, Gpus, Threads, Variable, choose, given, of_device, of_threads, thread_share};
pub use cpu::Cpu;
#[cfg(feature = "config")]
pub use notation::{GpuChoice, ThreadCount};

/// The hardware of a machine.
///
/// ```
/// use snakepit::hardware::Hardware;
///
/// let hardware = Hardware::look();
/// println!("{} cores", hardware.cpu.usable);
/// for gpu in &hardware.gpus {
///     println!("{gpu}");
/// }
/// ```
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Hardware {
    /// The cores.
    pub cpu: Cpu,
    /// The GPUs that this process may use, regardless of its environment variables.
    pub gpus: Vec<Gpu>,
}

/// A GPU.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Gpu {
    /// Its kind.
    pub kind: GpuKind,
    /// Its name in `CUDA_VISIBLE_DEVICES` or `HIP_VISIBLE_DEVICES`.
    pub id: String,
    /// Its model, if known.
    pub model: Option<String>,
}

/// The interface of a GPU.
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
    /// Returns the prefix of a device name.
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
    /// Returns the name of the GPU among the devices of a pool.
    pub fn device(&self) -> String {
        match self.kind {
            GpuKind::Mps => "mps".into(),
            kind => format!("{}:{}", kind.as_str(), self.id),
        }
    }
}

impl Hardware {
    /// Detects the hardware of this machine. Only reads files. If NVIDIA's driver writes none, as under WSL, run
    /// `nvidia-smi` with [`NVIDIA_SMI`] and pass its output to [`Hardware::with_nvidia_smi`].
    pub fn look() -> Self {
        Self::look_in(Path::new("/"), (std::env::consts::OS, std::env::consts::ARCH))
    }

    fn look_in(root: &Path, (system, processor): (&str, &str)) -> Self {
        let mut gpus = cuda::look(root);
        gpus.extend(rocm::look(root));
        // Each of Apple's own processors has a GPU.
        if (system, processor) == ("macos", "aarch64") {
            gpus.push(Gpu { kind: GpuKind::Mps, id: "0".into(), model: None });
        }
        Self { cpu: Cpu::look_in(root), gpus }
    }

    /// Adds the GPUs in the output of `nvidia-smi`, if no NVIDIA GPU was found.
    #[must_use]
    pub fn with_nvidia_smi(mut self, answer: &str) -> Self {
        if !self.gpus.iter().any(|gpu| gpu.kind == GpuKind::Cuda) {
            self.gpus.extend(cuda::read_smi(answer));
        }
        self
    }
}

/// The arguments of `nvidia-smi` for [`Hardware::with_nvidia_smi`].
pub const NVIDIA_SMI: [&str; 2] = ["--query-gpu=index,name", "--format=csv,noheader"];

#[cfg(test)]
mod tests;
