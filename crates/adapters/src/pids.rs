//! Process ids as the processes see them: inside a PID namespace they differ from the host's.

/// Returns the process id that a process sees for itself, or `None` if the process is gone or there is no `/proc`.
pub(super) fn own_number(pid: i32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_whitespace().last()?.parse().ok()
}

/// Reports whether the process id that a worker announces is its own or that of a process it has started.
///
/// Blocks while the kernel is read. Without `/proc`, the number is accepted unchecked.
#[cfg(feature = "announce")]
pub(super) fn is_in_custody(process: &crate::custody::WorkerProcess, number: u32) -> bool {
    let is_it = |pid: i32| own_number(pid) == Some(number);
    if is_it(process.pid().as_raw()) || own_number(std::process::id() as i32).is_none() {
        return true;
    }
    // A process whose parent ends during the first look may be missed. By the second look it is the shim's child.
    (0..2).any(|_| {
        let family = crate::worker::family_of(process.pid(), process.own_shim());
        family.into_iter().any(is_it)
    }) || in_group(process.pgid().as_raw()).into_iter().any(is_it)
}

/// Returns the inodes of the sockets that a worker and the processes it has started hold. The kernel's tables name
/// sockets by inode.
///
/// Blocks while the kernel is read.
#[cfg(all(target_os = "linux", any(feature = "grpc", feature = "http")))]
pub(super) fn sockets_of(process: &crate::custody::WorkerProcess) -> std::collections::HashSet<u64> {
    let family = crate::worker::family_of(process.pid(), process.own_shim());
    let pids = family.into_iter().chain(in_group(process.pgid().as_raw()));
    pids.flat_map(sockets).collect()
}

/// Returns the sockets of one process, or none if the process is gone or may not be inspected.
#[cfg(all(target_os = "linux", any(feature = "grpc", feature = "http")))]
fn sockets(pid: i32) -> Vec<u64> {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let socket = |entry: std::fs::DirEntry| {
        let target = std::fs::read_link(entry.path()).ok()?;
        target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    entries.flatten().filter_map(socket).collect()
}

/// Returns the processes of a group. A worker in the tier `group` has no shim, so only its group identifies its
/// orphans.
#[cfg(feature = "announce")]
fn in_group(pgid: i32) -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|&pid| group_of(pid) == Some(pgid)).collect()
}

/// Returns the process group of a process: the third word after the name, which may itself contain any character.
/// Reads the file because a kernel thread has group 0.
#[cfg(feature = "announce")]
fn group_of(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(2)?.parse().ok()
}
