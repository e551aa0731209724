//! NVIDIA's GPUs, as the kernel module reports them, in the order of the PCI bus, like `nvidia-smi`.

use std::fs;
use std::path::Path;

use super::{Gpu, GpuKind};

pub(super) fn look(root: &Path) -> Vec<Gpu> {
    let of_driver = of_driver(root);
    if of_driver.is_empty() { of_device_files(root) } else { of_driver }
}

/// Reads the driver's directory. It has an entry for each GPU, named by its address on the bus.
fn of_driver(root: &Path) -> Vec<Gpu> {
    let Ok(gpus) = fs::read_dir(root.join("proc/driver/nvidia/gpus")) else { return Vec::new() };
    let mut places: Vec<_> = gpus.flatten().map(|gpu| gpu.path()).collect();
    places.sort();
    let may_be_used = |information: &str| {
        // A container may hide some GPUs. They have no device file.
        fact(information, "Device Minor:")
            .is_none_or(|minor| root.join("dev").join(format!("nvidia{minor}")).exists())
    };
    let informations = places.iter().filter_map(|place| fs::read_to_string(place.join("information")).ok());
    let visible = informations.filter(|information| may_be_used(information));
    let gpu = |(index, information): (usize, String)| Gpu {
        kind: GpuKind::Cuda,
        id: index.to_string(),
        model: fact(&information, "Model:"),
    };
    visible.enumerate().map(gpu).collect()
}

fn fact(information: &str, name: &str) -> Option<String> {
    information.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned())
}

/// Counts the files `/dev/nvidia0`, …
fn of_device_files(root: &Path) -> Vec<Gpu> {
    let Ok(files) = fs::read_dir(root.join("dev")) else { return Vec::new() };
    let is_gpu = |name: &str| name.strip_prefix("nvidia").is_some_and(|number| number.parse::<u32>().is_ok());
    let count = files.flatten().filter(|file| file.file_name().to_str().is_some_and(is_gpu)).count();
    (0..count).map(|index| Gpu { kind: GpuKind::Cuda, id: index.to_string(), model: None }).collect()
}

/// Parses the output of `nvidia-smi`: one line for each GPU, with its number and model.
pub(super) fn read_smi(answer: &str) -> Vec<Gpu> {
    let gpu = |line: &str| {
        let (index, model) = line.split_once(',')?;
        let index: u32 = index.trim().parse().ok()?;
        Some(Gpu { kind: GpuKind::Cuda, id: index.to_string(), model: Some(model.trim().to_owned()) })
    };
    answer.lines().filter_map(gpu).collect()
}
