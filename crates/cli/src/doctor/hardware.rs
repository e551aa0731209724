//! The cores and GPUs that workers could use, and what makes environments for them.

use std::path::Path;

use snakepit::environment::Cache;
use snakepit::hardware::{Gpu, GpuKind, Hardware, NVIDIA_SMI};

use super::Finding;
use super::python::{ask, in_path};

pub(super) fn examine() -> Vec<Finding> {
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
    vec![
        cpu(&hardware),
        gpus("cuda", of(GpuKind::Cuda), "CUDA_VISIBLE_DEVICES", || {
            smi_says
                .unwrap_or_else(|| "no /proc/driver/nvidia, no /dev/nvidia0, no nvidia-smi in PATH".into())
        }),
        gpus("rocm", of(GpuKind::Rocm), "HIP_VISIBLE_DEVICES", || "no GPU in /sys/class/kfd".into()),
        gpus("mps", of(GpuKind::Mps), "", || "only Apple's machines have it".into()),
    ]
}

fn cpu(hardware: &Hardware) -> Finding {
    let cpu = &hardware.cpu;
    let quota =
        cpu.quota.map_or_else(String::new, |quota| format!(", the time of {quota:.1} by its control group"));
    let detail = format!("{} of {} cores usable ({} allowed{quota})", cpu.usable, cpu.present, cpu.allowed);
    Finding::ok("cpu", detail)
}

fn gpus<'a>(
    name: &'static str,
    found: impl Iterator<Item = &'a Gpu>,
    variable: &str,
    nowhere: impl FnOnce() -> String,
) -> Finding {
    let found: Vec<String> = found.map(ToString::to_string).collect();
    if found.is_empty() {
        return Finding::ok(name, format!("none: {}", nowhere()));
    }
    let set = std::env::var(variable).ok().map(|set| format!("; {variable}={set} leaves those"));
    Finding::ok(name, format!("{}{}", found.join(", "), set.unwrap_or_default()))
}

pub(super) fn environments() -> Vec<Finding> {
    let tool = match in_path("uv") {
        Some(uv) => Finding::ok("uv", uv.display().to_string()),
        None => Finding::ok("uv", "not in PATH: environments are made by venv and pip, which is slower"),
    };
    let cache = match Cache::default_dir() {
        Ok(dir) => Finding::ok("cache", kept(&dir)),
        Err(error) => Finding::warn("cache", error.to_string()),
    };
    vec![tool, cache]
}

fn kept(dir: &Path) -> String {
    let marks = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let count = marks.filter(|entry| entry.path().extension().is_some_and(|it| it == "env")).count();
    format!("{}, {count} environments", dir.display())
}
