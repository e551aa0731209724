//! What the kernel reports: namespaces, cgroups, seccomp, limits.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::process::{Resource, getrlimit};

use super::{Check, Finding, checks, no, ok, warn};

pub(super) fn examine() -> Vec<Check> {
    checks([
        ("/proc", proc()),
        ("PID namespace", children()),
        ("time namespace", time()),
        ("user namespaces", user_namespaces()),
        ("cgroup v2", cgroup()),
        ("seccomp", seccomp()),
        ("no_new_privs", no_new_privs()),
    ])
}

/// Checks whether `/proc` belongs to our own PID namespace. Otherwise its process IDs are useless.
fn proc() -> Finding {
    let own = std::process::id().to_string();
    let shown = match std::fs::read_link("/proc/self") {
        Ok(shown) => shown.display().to_string(),
        Err(error) => return no(format!("it does not list this process: {error}")),
    };
    // `NSpid` has one PID for each PID namespace, from the one of /proc down to ours.
    let numbers = own_status("NSpid").unwrap_or_default().split_whitespace().count();
    if shown != own || numbers > 1 {
        return no(format!(
            "of another PID namespace: there, this process is {shown}, here it is {own}; mount a /proc for this namespace"
        ));
    }
    match sysctl("/proc/sys/kernel/random/boot_id") {
        Some(_) => ok("of our own PID namespace"),
        None => no("without /proc/sys (ProcSubset=pid?): boots cannot be told apart"),
    }
}

fn children() -> Finding {
    let of = |name: &str| std::fs::read_link(format!("/proc/self/ns/{name}")).ok();
    match (of("pid"), of("pid_for_children")) {
        (Some(own), Some(children)) if own == children => ok("children share ours"),
        // The link is absent if the namespace has no process yet.
        (Some(_), _) => no("children start in another one: add `--fork` to `unshare --pid`"),
        _ => warn("unknown: /proc/self/ns cannot be read"),
    }
}

/// Reports time namespaces. Another time namespace shifts the start times of processes.
fn time() -> Finding {
    let Some(offsets) = sysctl("/proc/self/timens_offsets") else {
        return ok("none: the kernel does not support them");
    };
    let shifted = offsets.lines().filter(|line| line.split_whitespace().skip(1).any(|number| number != "0"));
    let shifted: Vec<_> = shifted.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    if shifted.is_empty() {
        ok("the machine's own")
    } else {
        warn(format!("not the machine's: {}", shifted.join(", ")))
    }
}

fn user_namespaces() -> Finding {
    if may_administer() {
        return ok("not needed: we are root");
    }
    let closed = [
        ("kernel/unprivileged_userns_clone", "0", "root can set it to 1"),
        ("user/max_user_namespaces", "0", "root can raise it"),
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "root can set it to 0 or write a profile for snakepit",
        ),
    ];
    for (name, bad, remedy) in closed {
        if sysctl(&format!("/proc/sys/{name}")).as_deref() == Some(bad) {
            return warn(format!("closed: {} is {bad}; {remedy}", name.replace('/', ".")));
        }
    }
    match sysctl("/proc/sys/user/max_user_namespaces") {
        Some(max) => ok(format!("open (at most {max})")),
        None => warn("the kernel was built without them"),
    }
}

/// Reports whether we have `CAP_SYS_ADMIN`. Root in a container lacks it.
fn may_administer() -> bool {
    const CAP_SYS_ADMIN: u32 = 21;
    own_status("CapEff")
        .and_then(|set| u64::from_str_radix(&set, 16).ok())
        .is_some_and(|set| set & (1 << CAP_SYS_ADMIN) != 0)
}

fn cgroup() -> Finding {
    let Some(mount) = cgroup2_mount() else {
        return warn("not mounted (cgroup v1 only, or none)");
    };
    let own = read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let own = if own.is_empty() { mount.clone() } else { mount.join(own) };
    if !own.join("cgroup.procs").exists() {
        return warn(format!("mounted on {}, but our own cgroup is outside it", mount.display()));
    }
    let kind = read_to_string(own.join("cgroup.type")).unwrap_or_default();
    if kind.contains("threaded") || kind.contains("invalid") {
        return warn(format!("{} is {}: it can hold only threads", own.display(), kind.trim()));
    }
    let hybrid = if mount == Path::new("/sys/fs/cgroup") { "" } else { " (hybrid: controllers are v1)" };
    match access(&own, Access::WRITE_OK) {
        Ok(()) => ok(format!("{} is writable{hybrid}", own.display())),
        Err(error) => warn(format!("{} is not writable: {error}{hybrid}", own.display())),
    }
}

fn cgroup2_mount() -> Option<PathBuf> {
    // In mountinfo, the mount point is the fifth field, and the type follows the lone dash.
    read_to_string("/proc/self/mountinfo").ok()?.lines().find_map(|line| {
        let (mount, source) = line.split_once(" - ")?;
        source.starts_with("cgroup2 ").then(|| mount.split(' ').nth(4).map(PathBuf::from))?
    })
}

fn seccomp() -> Finding {
    match own_status("Seccomp").as_deref() {
        Some("0") => ok("no filter"),
        Some("1") => warn("strict mode"),
        Some("2") => {
            let filters = own_status("Seccomp_filters").unwrap_or_else(|| "some".to_owned());
            warn(format!("filtered ({filters} filters): system calls such as clone or pidfd_open may fail"))
        }
        _ => warn("unknown: /proc/self/status does not say"),
    }
}

fn no_new_privs() -> Finding {
    match own_status("NoNewPrivs").as_deref() {
        Some("0") => ok("off: setuid programs work"),
        Some(_) => warn("on: setuid programs run without their privileges"),
        None => warn("unknown: /proc/self/status does not say"),
    }
}

pub(super) fn limits() -> Vec<Check> {
    checks([
        ("open files", limit(Resource::Nofile, FEW_FILES)),
        ("processes", limit(Resource::Nproc, FEW_PROCESSES)),
        ("file size", limit(Resource::Fsize, SMALL_FILE)),
        ("pid_max", sysctl(PID_MAX).map_or_else(|| warn(format!("unknown: {PID_MAX} cannot be read")), ok)),
        ("memfd_noexec", memfd_noexec()),
    ])
}

const PID_MAX: &str = "/proc/sys/kernel/pid_max";

/// Enough for a small host.
const FEW_FILES: u64 = 64;
const FEW_PROCESSES: u64 = 64;
/// The keeper's program takes 1.2 MB, and a ledger grows to a few MB.
const SMALL_FILE: u64 = 8 << 20;

fn limit(resource: Resource, enough: u64) -> Finding {
    let words = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
    let limit = getrlimit(resource);
    let detail = format!("{} (can be raised to {})", words(limit.current), words(limit.maximum));
    if limit.current.is_some_and(|current| current < enough) {
        return warn(format!("{detail}: a start may fail; a small host needs {enough}"));
    }
    ok(detail)
}

/// Reports whether programs may start from memory. The keeper starts from a memfd if the machine allows it.
fn memfd_noexec() -> Finding {
    match sysctl("/proc/sys/vm/memfd_noexec").as_deref() {
        Some("0") | None => ok("off: programs may start from memory"),
        Some("1") => ok("1: programs may start from memory on request"),
        Some(level) => warn(format!("{level}: no program may start from memory")),
    }
}

fn sysctl(path: &str) -> Option<String> {
    read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn own_status(key: &str) -> Option<String> {
    let status = read_to_string("/proc/self/status").ok()?;
    status
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':').map(|value| value.trim().to_owned()))
}
