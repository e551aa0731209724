//! AMD's GPUs, as the kernel's compute driver reports them, in the order of HIP's numbers.

use std::fs;
use std::path::Path;

use super::{Gpu, GpuKind};

pub(super) fn look(root: &Path) -> Vec<Gpu> {
    let Ok(nodes) = fs::read_dir(root.join("sys/class/kfd/kfd/topology/nodes")) else { return Vec::new() };
    let number = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let mut nodes: Vec<_> =
        nodes.flatten().filter_map(|node| Some((number(&node.path())?, node.path()))).collect();
    nodes.sort();
    let is_gpu = |node: &Path| {
        let properties = fs::read_to_string(node.join("properties")).unwrap_or_default();
        let simds = properties.lines().find_map(|line| line.strip_prefix("simd_count "));
        // A node without vector units is a CPU. A node that this process may not use cannot be read.
        simds.and_then(|count| count.trim().parse::<u32>().ok()).is_some_and(|count| count > 0)
    };
    let gpus = nodes.into_iter().map(|(_, node)| node).filter(|node| is_gpu(node));
    let gpu = |(index, node): (usize, std::path::PathBuf)| {
        let model = fs::read_to_string(node.join("name")).map(|name| name.trim().to_owned()).ok();
        Gpu { kind: GpuKind::Rocm, id: index.to_string(), model: model.filter(|model| !model.is_empty()) }
    };
    gpus.enumerate().map(gpu).collect()
}
