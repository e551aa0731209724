//! Which worker gets what: one GPU or all of them, and its share of the cores.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::{Cpu, Gpu, GpuKind, Hardware, NVIDIA_SMI};
use crate::Pool;
use crate::adapter::StartError;
use crate::custody::{Command, Run};
use crate::environment::Errands;

/// How long `nvidia-smi` may take: a driver that is asleep wakes up slowly.
const PATIENCE: Duration = Duration::from_secs(20);

/// Which GPUs the workers of a pool use.
///
/// What the host may use is what `CUDA_VISIBLE_DEVICES` (or `HIP_VISIBLE_DEVICES`) says in its environment, else all that are
/// found; none is an error.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Gpus {
    /// Each worker sees one. If there are more workers than GPUs they share them evenly; unless the pool says how many
    /// workers it has, there are as many as GPUs.
    OnePerWorker,
    /// As [`Gpus::OnePerWorker`], with these alone, named as in `CUDA_VISIBLE_DEVICES`.
    These(Vec<String>),
    /// Each worker sees all.
    All,
}

/// How many threads the numeric libraries of a worker use (BLAS, OpenMP), where nobody has said it by a variable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Threads {
    /// The usable cores, divided by the number of workers that there may be; at least 1.
    #[default]
    Shared,
    /// So many.
    Each(usize),
    /// As many as they like, which for most of them is one for each core of the machine.
    Unlimited,
}

/// The variables that limit threads. Whoever has set the first has decided about those that follow it, too, since their
/// libraries look at it next.
const OPENMP: &str = "OMP_NUM_THREADS";
const AFTER_OPENMP: [&str; 4] =
    ["OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "NUMEXPR_NUM_THREADS"];
const BY_ITSELF: &str = "VECLIB_MAXIMUM_THREADS";

/// A variable that a worker gets unless its own command says otherwise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Variable {
    pub(crate) name: &'static str,
    pub(crate) value: String,
}

/// The pool with its devices, and with what its workers are told of them.
pub(crate) async fn equipped(mut pool: Pool, run: Option<&Run>) -> Result<Pool, StartError> {
    if !pool.adapter.starts_processes() {
        return Ok(pool);
    }
    if let Some(gpus) = pool.gpus.clone() {
        let set = Set::of_host(run, &pool.name).await?;
        let chosen = set.choose(&gpus)?;
        if gpus != Gpus::All {
            pool.devices = chosen.iter().map(|gpu| Arc::from(gpu.device())).collect();
            if !pool.workers_are_said {
                pool.workers = chosen.len();
            }
        }
    }
    pool.thread_share = match pool.threads {
        Threads::Shared => {
            let workers = pool.sizing.map_or(pool.workers, |sizing| sizing.max_workers);
            Some((Cpu::look().usable / workers.max(1)).max(1))
        }
        Threads::Each(threads) => Some(threads.max(1)),
        Threads::Unlimited => None,
    };
    Ok(pool)
}

/// What the host may use.
#[derive(Debug)]
struct Set {
    gpus: Vec<Gpu>,
    /// What has named them, if it was a variable.
    by: Option<&'static str>,
}

impl Set {
    async fn of_host(run: Option<&Run>, pool: &str) -> Result<Self, StartError> {
        if let Some(set) = Self::of_variables(|name| std::env::var_os(name)) {
            return Ok(set);
        }
        let hardware = tokio::task::spawn_blocking(Hardware::look).await;
        let mut hardware =
            hardware.map_err(|_| StartError::Missing("the runtime is shutting down".into()))?;
        // Where there is none in files, the driver may be one that has none.
        if hardware.gpus.is_empty()
            && let Some(run) = run
            && let Some(smi) = crate::environment::in_path(Path::new("nvidia-smi"))
        {
            let errands = Errands::new(run.clone(), pool, "/".into());
            let done =
                errands.run("nvidia-smi", Command::new(smi).args(NVIDIA_SMI), PATIENCE, |_| {}).await?;
            if done.is_fine() {
                hardware = hardware.with_nvidia_smi(&done.lines.join("\n"));
            }
        }
        Ok(Self { gpus: hardware.gpus, by: None })
    }

    /// A variable that is set is the set, also if it is empty: the first that names something, else the first.
    fn of_variables(variable: impl Fn(&str) -> Option<OsString>) -> Option<Self> {
        let listed = |name: &'static str, kind| {
            let list = variable(name)?.to_string_lossy().into_owned();
            let ids = list.split(',').map(str::trim);
            // As the drivers have it: what follows something that is no device does not count.
            let ids = ids.take_while(|id| !id.is_empty() && !id.starts_with('-'));
            let gpus = ids.map(|id| Gpu { kind, id: id.to_owned(), model: None }).collect();
            Some(Self { gpus, by: Some(name) })
        };
        let of_rocr = || {
            // This one hides devices from HIP, which counts the others anew.
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

    fn choose(&self, gpus: &Gpus) -> Result<Vec<Gpu>, StartError> {
        let Self { gpus: there, by } = self;
        if there.is_empty() {
            let why = match by {
                Some(variable) => format!("{variable} names none"),
                None => "none was found; `snakepit doctor` says where it was looked".into(),
            };
            return Err(StartError::Missing(format!("the pool asks for GPUs, but {why}")));
        }
        let Gpus::These(wanted) = gpus else {
            // Of one kind, the first that was found: a worker with the graphics unit of the processor, which has a driver for
            // compute on some, would see all of the others as well.
            let kind = there[0].kind;
            return Ok(there.iter().filter(|gpu| gpu.kind == kind).cloned().collect());
        };
        if wanted.is_empty() {
            return Err(StartError::Missing(
                "the pool's list of GPUs is empty: name some, or leave it out".into(),
            ));
        }
        let find = |id: &String| {
            there.iter().find(|gpu| gpu.id == *id || gpu.device() == *id).cloned().ok_or_else(|| {
                let known: Vec<&str> = there.iter().map(|gpu| gpu.id.as_str()).collect();
                let by = by.map_or_else(String::new, |by| format!(" (by {by})"));
                StartError::Missing(format!(
                    "there is no GPU {id} for this pool: there are {}{by}",
                    known.join(", ")
                ))
            })
        };
        wanted.iter().map(find).collect()
    }
}

impl Pool {
    /// What a worker with this device finds in its environment.
    pub(crate) fn variables(&self, device: Option<&str>) -> Vec<Variable> {
        let mut variables = self.gpus.as_ref().and(device).map_or_else(Vec::new, of_device);
        if let Some(threads) = self.thread_share {
            variables.extend(of_threads(threads, |name| std::env::var_os(name).is_some()));
        }
        variables
    }
}

fn of_device(device: &str) -> Vec<Variable> {
    match device.split_once(':') {
        Some(("cuda", id)) => {
            let mut variables = vec![Variable { name: "CUDA_VISIBLE_DEVICES", value: id.to_owned() }];
            // We count them as `nvidia-smi` does; CUDA by itself takes the fastest one first.
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

/// `is_set` tells what the host's environment has, which stays.
fn of_threads(threads: usize, is_set: impl Fn(&str) -> bool) -> Vec<Variable> {
    let mut names = vec![BY_ITSELF];
    if !is_set(OPENMP) {
        names.push(OPENMP);
        names.extend(AFTER_OPENMP);
    }
    let unset = names.into_iter().filter(|name| !is_set(name));
    unset.map(|name| Variable { name, value: threads.to_string() }).collect()
}

/// Gives a command its variables, but for those that it sets itself.
pub(crate) fn given(command: Command, variables: &[Variable]) -> Command {
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

    fn set(variables: &[(&str, &str)]) -> Option<Set> {
        let find = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
        Set::of_variables(find)
    }

    #[test]
    fn what_the_host_may_use_is_what_its_variables_say() {
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
    fn a_list_takes_only_what_is_there() {
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
    fn one_each_means_of_one_kind_and_a_list_may_name_the_other() {
        let gpu = |kind, id: &str| Gpu { kind, id: id.into(), model: None };
        let gpus = vec![gpu(GpuKind::Cuda, "0"), gpu(GpuKind::Cuda, "1"), gpu(GpuKind::Rocm, "0")];
        let there = Set { gpus, by: None };
        let choose = |gpus| ids(&there.choose(&gpus).expect("some"));
        assert_eq!(choose(Gpus::OnePerWorker), ["cuda:0", "cuda:1"]);
        assert_eq!(choose(Gpus::These(vec!["hip:0".into()])), ["hip:0"]);
        assert_eq!(choose(Gpus::These(vec!["0".into()])), ["cuda:0"]);
    }

    #[test]
    fn limits_of_threads_leave_alone_what_somebody_has_said() {
        let names = |is_set: &dyn Fn(&str) -> bool| -> Vec<&str> {
            of_threads(2, is_set).iter().map(|variable| variable.name).collect()
        };
        assert_eq!(names(&|_| false).len(), 6);
        assert_eq!(names(&|name| name == OPENMP), [BY_ITSELF]);
        assert!(!names(&|name| name == "MKL_NUM_THREADS").contains(&"MKL_NUM_THREADS"));
        let variables = of_threads(2, |_| false);
        let command = given(Command::new("true").env(OPENMP, "7"), &variables);
        assert!(command.says(OPENMP) && command.says(BY_ITSELF) && !command.says("MKL_NUM_THREADS"));
    }
}
