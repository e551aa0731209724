//! Process ids as the processes see them: inside a PID namespace they differ from the host's.

/// The number that a process knows itself by; `None` if it is gone, or this system does not tell.
pub(super) fn own_number(pid: i32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_whitespace().last()?.parse().ok()
}

/// Whether a worker that names this number speaks of itself, or of somebody whom it has started.
///
/// Blocks for as long as the kernel takes. Where there is no `/proc`, it is believed.
#[cfg(feature = "announce")]
pub(super) fn is_in_custody(process: &crate::custody::WorkerProcess, number: u32) -> bool {
    let is_it = |pid: i32| own_number(pid) == Some(number);
    if is_it(process.pid().as_raw()) || own_number(std::process::id() as i32).is_none() {
        return true;
    }
    // One whose parent ends while we look may be missed: it is the shim's child at the next look.
    (0..2).any(|_| {
        let family = crate::worker::family_of(process.pid(), process.own_shim());
        family.into_iter().any(is_it)
    }) || in_group(process.pgid().as_raw()).into_iter().any(is_it)
}

/// The sockets that a worker, and whatever it has started, hold: the numbers by which the kernel's tables name them.
///
/// Blocks for as long as the kernel takes.
#[cfg(all(target_os = "linux", any(feature = "grpc", feature = "http")))]
pub(super) fn sockets_of(process: &crate::custody::WorkerProcess) -> std::collections::HashSet<u64> {
    let family = crate::worker::family_of(process.pid(), process.own_shim());
    let pids = family.into_iter().chain(in_group(process.pgid().as_raw()));
    pids.flat_map(sockets).collect()
}

/// The sockets of one process; none if it is gone, or not ours to look at.
#[cfg(all(target_os = "linux", any(feature = "grpc", feature = "http")))]
fn sockets(pid: i32) -> Vec<u64> {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let socket = |entry: std::fs::DirEntry| {
        let target = std::fs::read_link(entry.path()).ok()?;
        target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    entries.flatten().filter_map(socket).collect()
}

/// The processes of a group, as of a worker in the tier `group`, whose orphans have no shim.
#[cfg(feature = "announce")]
fn in_group(pgid: i32) -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|&pid| group_of(pid) == Some(pgid)).collect()
}

/// The third word after the name, which may itself hold anything. Asked of the file: a kernel thread's is 0.
#[cfg(feature = "announce")]
fn group_of(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(2)?.parse().ok()
}
