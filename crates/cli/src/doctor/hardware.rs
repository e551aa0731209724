//! Reports the cores and GPUs that workers can use, and the tools that build environments for them.

use std::path::Path;

use snakepit::environment::Cache;
use snakepit::hardware::{Gpu, GpuKind, Hardware, NVIDIA_SMI};

use super::python::{ask, in_path};
use super::{Check, Finding, checks, ok, warn};

pub(super) fn examine() -> Vec<Check> {
    let mut hardware = Hardware::look();
    let mut smi_says = None;
    if !hardware.gpus.iter().any(|gpu| gpu.kind == GpuKind::Cuda)
        && let Some(smi) = in_path("nvidia-smi")
    {
        match ask(&smi, &NVIDIA_SMI) {
            Ok(answer) => hardware = hardware.with_nvidia_smi(&answer),
            Err(why) => smi_says = Some(format!("{} {why}", smi.display())),
        }
    }
    let of = |kind| hardware.gpus.iter().filter(move |gpu| gpu.kind == kind);
    let no_cuda =
        smi_says.as_deref().unwrap_or("no /proc/driver/nvidia, no /dev/nvidia0, no nvidia-smi in PATH");
    checks([
        ("cpu", cpu(&hardware)),
        ("cuda", gpus(of(GpuKind::Cuda), "CUDA_VISIBLE_DEVICES", no_cuda)),
        ("rocm", gpus(of(GpuKind::Rocm), "HIP_VISIBLE_DEVICES", "no GPU in /sys/class/kfd")),
        ("mps", gpus(of(GpuKind::Mps), "", "only on Apple machines")),
    ])
}

fn cpu(hardware: &Hardware) -> Finding {
    let cpu = &hardware.cpu;
    let quota = cpu.quota.map(|quota| format!(", limited to {quota:.1} by the control group"));
    let quota = quota.unwrap_or_default();
    ok(format!("{} of {} cores usable ({} allowed{quota})", cpu.usable, cpu.present, cpu.allowed))
}

fn gpus<'a>(found: impl Iterator<Item = &'a Gpu>, variable: &str, nowhere: &str) -> Finding {
    let found: Vec<String> = found.map(ToString::to_string).collect();
    if found.is_empty() {
        return ok(format!("none: {nowhere}"));
    }
    let set = std::env::var(variable).ok().map(|set| format!("; {variable}={set} selects those"));
    ok(format!("{}{}", found.join(", "), set.unwrap_or_default()))
}

pub(super) fn environments() -> Vec<Check> {
    let tool = match in_path("uv") {
        Some(uv) => uv.display().to_string(),
        None => "not in PATH: venv and pip make environments, which is slower".to_owned(),
    };
    let cache = match Cache::default_dir() {
        Ok(dir) => ok(kept(&dir)),
        Err(error) => warn(error.to_string()),
    };
    checks([("uv", ok(tool)), ("cache", cache)])
}

fn kept(dir: &Path) -> String {
    let marks = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let count = marks.filter(|entry| entry.path().extension().is_some_and(|it| it == "env")).count();
    format!("{}, {count} environments", dir.display())
}
