//! Detection of hardware, on machines that are directories.

use std::fs;
use std::path::Path;

use super::*;

struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn file(self, path: &str, text: &str) -> Self {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        fs::write(path, text).expect("written");
        self
    }

    fn look(&self) -> Hardware {
        self.look_as("linux", "x86_64")
    }

    fn look_as(&self, system: &str, processor: &str) -> Hardware {
        Hardware::look_in(self.0.path(), (system, processor))
    }

    fn gpus(&self) -> Vec<String> {
        self.look().gpus.iter().map(ToString::to_string).collect()
    }
}

#[test]
fn affinity_and_quota_limit_the_cores() {
    let machine = || {
        Machine::new()
            .file("sys/devices/system/cpu/present", "0-15\n")
            .file("proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-5,8,9\n")
    };
    let Cpu { usable, allowed, present, quota } = machine().look().cpu;
    assert_eq!((usable, allowed, present, quota), (8, 8, 16, None));
    let limited = machine()
        .file("proc/self/cgroup", "0::/a/b\n")
        .file("sys/fs/cgroup/a/b/cpu.max", "max 100000\n")
        .file("sys/fs/cgroup/a/cpu.max", "250000 100000\n");
    let cpu = limited.look().cpu;
    assert_eq!((cpu.usable, cpu.quota), (2, Some(2.5)));
    let old = machine()
        .file("proc/self/cgroup", "12:memory:/x\n3:cpu,cpuacct:/x\n")
        .file("sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "50000\n")
        .file("sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
    assert_eq!((old.look().cpu.usable, old.look().cpu.quota), (1, Some(0.5)));
    assert!(Cpu::look_in(Path::new("/nonexistent")).usable >= 1);
    let here = std::thread::available_parallelism().map_or(1, usize::from);
    assert_eq!(Cpu::look().usable, here, "{:?}", Cpu::look());
}

#[test]
fn nvidia_gpus_are_numbered_along_the_bus_without_hidden_ones() {
    let information =
        |model: &str, minor: u32| format!("Model: \t\t {model}\nIRQ: 1\nDevice Minor: \t {minor}\n");
    let machine = Machine::new()
        .file("proc/driver/nvidia/gpus/0000:81:00.0/information", &information("NVIDIA B", 0))
        .file("proc/driver/nvidia/gpus/0000:01:00.0/information", &information("NVIDIA A", 1))
        .file("proc/driver/nvidia/gpus/0000:41:00.0/information", &information("NVIDIA C", 2))
        .file("dev/nvidia0", "")
        .file("dev/nvidia1", "")
        .file("dev/nvidiactl", "");
    assert_eq!(machine.gpus(), ["cuda:0 (NVIDIA A)", "cuda:1 (NVIDIA B)"]);
    let only_files =
        Machine::new().file("dev/nvidia0", "").file("dev/nvidia3", "").file("dev/nvidia-uvm", "");
    assert_eq!(only_files.gpus(), ["cuda:0", "cuda:1"]);
}

#[test]
fn nvidia_smi_counts_only_if_files_report_no_gpu() {
    let answer = "0, NVIDIA GeForce RTX 4090\n1, NVIDIA A100, 40GB\nNo devices were found\n";
    let found = |machine: Machine| machine.look().with_nvidia_smi(answer).gpus.len();
    assert_eq!(found(Machine::new()), 2);
    assert_eq!(found(Machine::new().file("dev/nvidia0", "")), 1);
}

#[test]
fn amd_gpus_are_the_nodes_with_vector_units() {
    let node = |number: u32| format!("sys/class/kfd/kfd/topology/nodes/{number}");
    let machine = Machine::new()
        .file(&format!("{}/properties", node(0)), "cpu_cores_count 64\nsimd_count 0\n")
        .file(&format!("{}/properties", node(10)), "simd_count 440\n")
        .file(&format!("{}/name", node(10)), "gfx90a\n")
        .file(&format!("{}/properties", node(2)), "simd_count 440\n");
    assert_eq!(machine.gpus(), ["hip:0", "hip:1 (gfx90a)"]);
}

#[test]
fn an_apple_processor_has_a_gpu_and_other_machines_may_have_none() {
    let machine = Machine::new();
    let found = |system, processor| machine.look_as(system, processor).gpus;
    let devices: Vec<_> = found("macos", "aarch64").iter().map(Gpu::device).collect();
    assert_eq!(devices, ["mps"]);
    assert!(found("macos", "x86_64").is_empty() && found("linux", "aarch64").is_empty());
    assert!(machine.file("dev/nvidiactl", "").file("dev/dri/card0", "").gpus().is_empty());
}
