//! The assignment of hardware to workers: one GPU or all, and a share of the cores.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use super::{Cpu, Gpu, GpuKind, Hardware, NVIDIA_SMI};
use crate::{EnvironmentError, HelperRunner};
use snakepit_custody::{Command, Run};

/// The time limit for `nvidia-smi`. A sleeping driver wakes up slowly.
const NVIDIA_SMI_TIMEOUT: Duration = Duration::from_secs(20);

/// Which GPUs the workers of a pool use.
///
/// The host may use the GPUs in `CUDA_VISIBLE_DEVICES` (or `HIP_VISIBLE_DEVICES`), or else all GPUs that are found.
/// It is an error if there are none.
///
/// ```
/// use snakepit::hardware::Gpus;
/// use snakepit::python;
///
/// let pool = python("worker.py").gpus(Gpus::These(vec!["0".into(), "1".into()]));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Gpus {
    /// Each worker sees one GPU. If there are more workers than GPUs, workers share GPUs evenly. A pool without a set
    /// number of workers gets one worker for each GPU.
    OnePerWorker,
    /// Like [`Gpus::OnePerWorker`], with these GPUs only, named as in `CUDA_VISIBLE_DEVICES`.
    These(Vec<String>),
    /// Each worker sees all GPUs.
    All,
}

/// The number of threads that a worker's numeric libraries (BLAS, OpenMP) use, unless an environment variable sets
/// it.
///
/// ```
/// use snakepit::hardware::Threads;
/// use snakepit::python;
///
/// let pool = python("worker.py").workers(4).threads(Threads::Each(2));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Threads {
    /// The usable cores divided by the largest number of workers, but at least 1.
    #[default]
    Shared,
    /// This many threads.
    Each(usize),
    /// As many threads as the libraries choose: most use one for each core of the machine.
    Unlimited,
}

/// The variables that limit threads. `OMP_NUM_THREADS` also applies to the libraries of those in `AFTER_OPENMP`,
/// which read it next.
const OPENMP: &str = "OMP_NUM_THREADS";
const AFTER_OPENMP: [&str; 4] =
    ["OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "NUMEXPR_NUM_THREADS"];
const VECLIB: &str = "VECLIB_MAXIMUM_THREADS";

/// An environment variable that a worker gets, unless its command sets it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: String,
}

/// Why a pool cannot have the GPUs that it requests.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GpuError {
    /// The host has no GPU.
    #[error("the pool asks for GPUs, but {}", no_gpus(*.variable))]
    None {
        /// The variable that hides all GPUs, if one is set.
        variable: Option<&'static str>,
    },
    /// The pool's list is empty.
    #[error("the pool's list of GPUs is empty: name some, or leave it out")]
    EmptyList,
    /// The pool's list names a GPU that does not exist.
    #[error("there is no GPU {id} for this pool: the GPUs are {}{}", .known.join(", "), by_variable(*.variable))]
    Unknown {
        /// The name in the list.
        id: String,
        /// The GPUs of the host.
        known: Vec<String>,
        /// The variable that names those GPUs, if one is set.
        variable: Option<&'static str>,
    },
    /// `nvidia-smi` could not be run.
    #[error(transparent)]
    Helper(#[from] EnvironmentError),
}

fn no_gpus(variable: Option<&str>) -> String {
    match variable {
        Some(variable) => format!("{variable} names none: unset it, or name some"),
        None => "none was found; `snakepit doctor` shows where it looked".into(),
    }
}

fn by_variable(variable: Option<&str>) -> String {
    variable.map_or_else(String::new, |variable| format!(" (by {variable})"))
}

/// Returns the GPUs of this host that the workers of a pool use.
pub async fn choose(gpus: &Gpus, run: Option<&Run>, pool: &str) -> Result<Vec<Gpu>, GpuError> {
    VisibleGpus::of_host(run, pool).await?.choose(gpus)
}

/// Returns the number of threads that each worker should use, or `None` if there is no limit.
pub fn thread_share(threads: Threads, workers: usize) -> Option<usize> {
    match threads {
        Threads::Shared => Some((Cpu::look().usable / workers.max(1)).max(1)),
        Threads::Each(threads) => Some(threads.max(1)),
        Threads::Unlimited => None,
    }
}

/// The GPUs that the host may use.
#[derive(Debug)]
struct VisibleGpus {
    gpus: Vec<Gpu>,
    /// The variable that names the GPUs, if one is set.
    by: Option<&'static str>,
}

impl VisibleGpus {
    async fn of_host(run: Option<&Run>, pool: &str) -> Result<Self, GpuError> {
        if let Some(set) = Self::of_variables(|name| std::env::var_os(name)) {
            return Ok(set);
        }
        let hardware = tokio::task::spawn_blocking(Hardware::look).await;
        let mut hardware = hardware.map_err(|_| EnvironmentError::Runtime)?;
        // Some drivers write no files.
        if hardware.gpus.is_empty()
            && let Some(run) = run
            && let Some(smi) = crate::in_path(Path::new("nvidia-smi"))
        {
            let helpers = HelperRunner::new(run.clone(), pool, "/".into());
            let done = helpers
                .run("nvidia-smi", Command::new(smi).args(NVIDIA_SMI), NVIDIA_SMI_TIMEOUT, |_| {})
                .await?;
            if done.is_success() {
                hardware = hardware.with_nvidia_smi(&done.lines.join("\n"));
            }
        }
        Ok(Self { gpus: hardware.gpus, by: None })
    }

    /// Returns the GPUs of the first variable that names any, or else of the first that is set. An empty variable
    /// hides all GPUs.
    fn of_variables(variable: impl Fn(&str) -> Option<OsString>) -> Option<Self> {
        let listed = |name: &'static str, kind| {
            let list = variable(name)?.to_string_lossy().into_owned();
            let ids = list.split(',').map(str::trim);
            // Like the drivers, ignores the names after an invalid one.
            let ids = ids.take_while(|id| !id.is_empty() && !id.starts_with('-'));
            let gpus = ids.map(|id| Gpu { kind, id: id.to_owned(), model: None }).collect();
            Some(Self { gpus, by: Some(name) })
        };
        let of_rocr = || {
            // This variable hides devices from HIP, which renumbers the others.
            let set = listed("ROCR_VISIBLE_DEVICES", GpuKind::Rocm)?;
            let anew = |(index, gpu): (usize, Gpu)| Gpu { id: index.to_string(), ..gpu };
            Some(Self { gpus: set.gpus.into_iter().enumerate().map(anew).collect(), by: set.by })
        };
        let sets = [
            listed("CUDA_VISIBLE_DEVICES", GpuKind::Cuda),
            listed("HIP_VISIBLE_DEVICES", GpuKind::Rocm),
            of_rocr(),
        ];
        let (some, none): (Vec<_>, Vec<_>) = sets.into_iter().flatten().partition(|set| !set.gpus.is_empty());
        some.into_iter().chain(none).next()
    }

    fn choose(&self, gpus: &Gpus) -> Result<Vec<Gpu>, GpuError> {
        let Self { gpus: there, by } = self;
        if there.is_empty() {
            return Err(GpuError::None { variable: *by });
        }
        let Gpus::These(wanted) = gpus else {
            // Uses only the kind of the first GPU: a worker that got the processor's integrated GPU would see all
            // other GPUs, too.
            let kind = there[0].kind;
            return Ok(there.iter().filter(|gpu| gpu.kind == kind).cloned().collect());
        };
        if wanted.is_empty() {
            return Err(GpuError::EmptyList);
        }
        let find = |id: &String| {
            there.iter().find(|gpu| gpu.id == *id || gpu.device() == *id).cloned().ok_or_else(|| {
                let known = there.iter().map(|gpu| gpu.id.clone()).collect();
                GpuError::Unknown { id: id.clone(), known, variable: *by }
            })
        };
        wanted.iter().map(find).collect()
    }
}

/// Returns the variables of a worker that uses this device.
pub fn of_device(device: &str) -> Vec<Variable> {
    match device.split_once(':') {
        Some(("cuda", id)) => {
            let mut variables = vec![Variable { name: "CUDA_VISIBLE_DEVICES", value: id.to_owned() }];
            // Snakepit numbers GPUs as `nvidia-smi` does. By default, CUDA puts the fastest first.
            if std::env::var_os("CUDA_VISIBLE_DEVICES").is_none()
                && std::env::var_os("CUDA_DEVICE_ORDER").is_none()
            {
                variables.push(Variable { name: "CUDA_DEVICE_ORDER", value: "PCI_BUS_ID".into() });
            }
            variables
        }
        Some(("hip", id)) => vec![Variable { name: "HIP_VISIBLE_DEVICES", value: id.to_owned() }],
        _ => Vec::new(),
    }
}

/// Returns the variables that limit the threads of a worker. Variables that the host sets (`is_set`) stay unchanged.
pub fn of_threads(threads: usize, is_set: impl Fn(&str) -> bool) -> Vec<Variable> {
    let mut names = vec![VECLIB];
    if !is_set(OPENMP) {
        names.push(OPENMP);
        names.extend(AFTER_OPENMP);
    }
    let unset = names.into_iter().filter(|name| !is_set(name));
    unset.map(|name| Variable { name, value: threads.to_string() }).collect()
}

/// Adds variables to a command, except those that the command sets itself.
pub fn given(command: Command, variables: &[Variable]) -> Command {
    let decides_threads = command.says(OPENMP);
    variables.iter().fold(command, |command, Variable { name, value }| {
        let is_decided = command.says(name) || decides_threads && AFTER_OPENMP.contains(name);
        if is_decided { command } else { command.env(name, value) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(gpus: &[Gpu]) -> Vec<String> {
        gpus.iter().map(Gpu::device).collect()
    }

    fn set(variables: &[(&str, &str)]) -> Option<VisibleGpus> {
        let find = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
        VisibleGpus::of_variables(find)
    }

    #[test]
    fn variables_decide_which_gpus_the_host_may_use() {
        assert!(set(&[]).is_none());
        let ids_of = |name, value| ids(&set(&[(name, value)]).expect("a set").gpus);
        assert_eq!(ids_of("CUDA_VISIBLE_DEVICES", "2, 5"), ["cuda:2", "cuda:5"]);
        assert_eq!(ids_of("CUDA_VISIBLE_DEVICES", "GPU-1a,MIG-2b"), ["cuda:GPU-1a", "cuda:MIG-2b"]);
        assert_eq!(ids_of("CUDA_VISIBLE_DEVICES", "0,-1,1"), ["cuda:0"]);
        assert!(ids_of("CUDA_VISIBLE_DEVICES", "").is_empty());
        assert_eq!(ids_of("HIP_VISIBLE_DEVICES", "3"), ["hip:3"]);
        assert_eq!(ids_of("ROCR_VISIBLE_DEVICES", "3,7"), ["hip:0", "hip:1"]);
        let hidden = set(&[("CUDA_VISIBLE_DEVICES", ""), ("HIP_VISIBLE_DEVICES", "1")]).expect("a set");
        assert_eq!(ids(&hidden.gpus), ["hip:1"], "NVIDIA's are hidden, AMD's are not");
        assert_eq!(set(&[("HIP_VISIBLE_DEVICES", "-1")]).expect("a set").by, Some("HIP_VISIBLE_DEVICES"));
    }

    #[test]
    fn a_list_names_only_gpus_that_exist() {
        let there = set(&[("CUDA_VISIBLE_DEVICES", "4,5")]).expect("a set");
        let choose = |gpus| there.choose(&gpus).map(|gpus| ids(&gpus)).map_err(|error| error.to_string());
        assert_eq!(choose(Gpus::OnePerWorker), Ok(vec!["cuda:4".into(), "cuda:5".into()]));
        assert_eq!(choose(Gpus::These(vec!["5".into()])), Ok(vec!["cuda:5".into()]));
        assert_eq!(choose(Gpus::These(vec!["cuda:4".into()])), Ok(vec!["cuda:4".into()]));
        let refused = choose(Gpus::These(vec!["0".into()])).expect_err("hidden");
        assert!(
            refused.contains("no GPU 0") && refused.contains("4, 5 (by CUDA_VISIBLE_DEVICES)"),
            "{refused}"
        );
        let none =
            set(&[("CUDA_VISIBLE_DEVICES", "-1")]).expect("a set").choose(&Gpus::All).expect_err("none");
        assert!(none.to_string().contains("CUDA_VISIBLE_DEVICES names none"), "{none}");
    }

    #[test]
    fn one_per_worker_uses_one_kind_and_a_list_may_name_another() {
        let gpu = |kind, id: &str| Gpu { kind, id: id.into(), model: None };
        let gpus = vec![gpu(GpuKind::Cuda, "0"), gpu(GpuKind::Cuda, "1"), gpu(GpuKind::Rocm, "0")];
        let there = VisibleGpus { gpus, by: None };
        let choose = |gpus| ids(&there.choose(&gpus).expect("some"));
        assert_eq!(choose(Gpus::OnePerWorker), ["cuda:0", "cuda:1"]);
        assert_eq!(choose(Gpus::These(vec!["hip:0".into()])), ["hip:0"]);
        assert_eq!(choose(Gpus::These(vec!["0".into()])), ["cuda:0"]);
    }

    #[test]
    fn thread_limits_do_not_override_variables_that_are_set() {
        let names = |is_set: &dyn Fn(&str) -> bool| -> Vec<&str> {
            of_threads(2, is_set).iter().map(|variable| variable.name).collect()
        };
        assert_eq!(names(&|_| false).len(), 6);
        assert_eq!(names(&|name| name == OPENMP), [VECLIB]);
        assert!(!names(&|name| name == "MKL_NUM_THREADS").contains(&"MKL_NUM_THREADS"));
        let variables = of_threads(2, |_| false);
        let command = given(Command::new("true").env(OPENMP, "7"), &variables);
        assert!(command.says(OPENMP) && command.says(VECLIB) && !command.says("MKL_NUM_THREADS"));
    }
}
