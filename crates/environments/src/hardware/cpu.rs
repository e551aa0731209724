//! The cores that this process may use. An affinity or a quota may limit them to fewer than the machine has.

use std::fs::read_to_string;
use std::path::Path;

/// The cores of the machine, and those that this process may use.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Cpu {
    /// The number of threads that can run at full speed at the same time, at least 1.
    pub usable: usize,
    /// The number of cores that the affinity of the process allows.
    pub allowed: usize,
    /// The number of cores of the machine.
    pub present: usize,
    /// The number of cores whose time the control group may use, if limited.
    pub quota: Option<f64>,
}

impl Cpu {
    /// Detects the cores of this machine.
    pub fn look() -> Self {
        Self::look_in(Path::new("/"))
    }

    pub(super) fn look_in(root: &Path) -> Self {
        let known = || std::thread::available_parallelism().map_or(1, usize::from);
        let status = read_to_string(root.join("proc/self/status")).unwrap_or_default();
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let allowed = allowed.and_then(count).unwrap_or_else(known);
        let present = read_to_string(root.join("sys/devices/system/cpu/present")).ok();
        let present = present.as_deref().and_then(count).unwrap_or(allowed);
        let quota = quota(root);
        // Rounded down, as in the standard library: one thread too many slows all of them.
        let by_quota = quota.map_or(allowed, |quota| quota.floor() as usize);
        Self { usable: allowed.min(by_quota).max(1), allowed, present, quota }
    }
}

/// Counts the numbers in a list such as `0-3,8`.
fn count(list: &str) -> Option<usize> {
    let mut numbers = 0;
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        numbers += last.checked_sub(first)? + 1;
    }
    Some(numbers)
}

/// Returns the smallest quota of this process's control group and its ancestors.
fn quota(root: &Path) -> Option<f64> {
    let groups = read_to_string(root.join("proc/self/cgroup")).ok()?;
    let quotas = groups.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next(), parts.next().unwrap_or_default(), parts.next());
        let path = path.unwrap_or_default().trim_start_matches('/').to_owned();
        let read = match controllers {
            "" => of_v2 as fn(&Path) -> Option<f64>,
            list if list.split(',').any(|name| name == "cpu") => of_v1,
            _ => return Vec::new(),
        };
        let mount = root.join(if controllers.is_empty() { "sys/fs/cgroup" } else { "sys/fs/cgroup/cpu" });
        let above = Path::new(&path).ancestors().map(|group| mount.join(group));
        above.filter_map(|group| read(&group)).collect()
    });
    quotas.reduce(f64::min)
}

fn of_v2(group: &Path) -> Option<f64> {
    let limit = read_to_string(group.join("cpu.max")).ok()?;
    let (quota, period) = limit.trim().split_once(' ')?;
    ratio(quota, period)
}

fn of_v1(group: &Path) -> Option<f64> {
    let read = |name: &str| read_to_string(group.join(name)).ok();
    ratio(read("cpu.cfs_quota_us")?.trim(), read("cpu.cfs_period_us")?.trim())
}

/// Returns the number of cores, or `None` for `max` and -1, which mean that there is no quota.
fn ratio(quota: &str, period: &str) -> Option<f64> {
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}
