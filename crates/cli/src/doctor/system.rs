//! What the kernel tells about itself and about us: namespaces, cgroups, seccomp, limits.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::process::{Resource, getrlimit};

use super::Finding;

pub(super) fn examine() -> Vec<Finding> {
    vec![proc(), children(), time(), user_namespaces(), cgroup(), seccomp(), no_new_privs()]
}

/// Numbers of processes mean something only if `/proc` counts them as we do.
fn proc() -> Finding {
    const NAME: &str = "/proc";
    let own = std::process::id().to_string();
    let shown = match std::fs::read_link("/proc/self") {
        Ok(shown) => shown.display().to_string(),
        Err(error) => return Finding::no(NAME, format!("it does not show this process: {error}")),
    };
    // One number for each PID namespace from that of /proc down to ours.
    let numbers = own_status("NSpid").unwrap_or_default().split_whitespace().count();
    if shown != own || numbers > 1 {
        return Finding::no(
            NAME,
            format!(
                "of another PID namespace: it calls this process {shown}, and it is {own}; mount one of your own"
            ),
        );
    }
    match sysctl("/proc/sys/kernel/random/boot_id") {
        Some(_) => Finding::ok(NAME, "of our own PID namespace"),
        None => Finding::no(
            NAME,
            "without /proc/sys, as with ProcSubset=pid: nothing tells one boot from another",
        ),
    }
}

fn children() -> Finding {
    const NAME: &str = "PID namespace";
    let of = |name: &str| std::fs::read_link(format!("/proc/self/ns/{name}")).ok();
    match (of("pid"), of("pid_for_children")) {
        (Some(own), Some(children)) if own == children => Finding::ok(NAME, "children share ours"),
        // Not there: a namespace that has nobody in it yet.
        (Some(_), _) => {
            Finding::no(NAME, "children are born into another one: after `unshare --pid`, `--fork` is needed")
        }
        _ => Finding::warn(NAME, "unknown: /proc/self/ns does not tell"),
    }
}

/// In another time namespace, start times of processes are others.
fn time() -> Finding {
    const NAME: &str = "time namespace";
    let Some(offsets) = sysctl("/proc/self/timens_offsets") else {
        return Finding::ok(NAME, "none: the kernel has no such namespaces");
    };
    let shifted = offsets.lines().filter(|line| line.split_whitespace().skip(1).any(|number| number != "0"));
    let shifted: Vec<_> = shifted.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    if shifted.is_empty() {
        Finding::ok(NAME, "the machine's own")
    } else {
        Finding::warn(NAME, format!("another one than the machine's: {}", shifted.join(", ")))
    }
}

fn user_namespaces() -> Finding {
    const NAME: &str = "user namespaces";
    if may_administer() {
        return Finding::ok(NAME, "not needed: we are root");
    }
    let closed = [
        (
            "/proc/sys/kernel/unprivileged_userns_clone",
            "0",
            "kernel.unprivileged_userns_clone is 0; root can set it to 1",
        ),
        ("/proc/sys/user/max_user_namespaces", "0", "user.max_user_namespaces is 0; root can raise it"),
        (
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "kernel.apparmor_restrict_unprivileged_userns is 1; root can set it to 0 or write a profile for snakepit",
        ),
    ];
    for (path, bad, why) in closed {
        if sysctl(path).as_deref() == Some(bad) {
            return Finding::warn(NAME, format!("closed: {why}"));
        }
    }
    match sysctl("/proc/sys/user/max_user_namespaces") {
        Some(max) => Finding::ok(NAME, format!("open (at most {max})")),
        None => Finding::warn(NAME, "the kernel was built without them"),
    }
}

/// Whether we have `CAP_SYS_ADMIN`, which root in a container has not.
fn may_administer() -> bool {
    const CAP_SYS_ADMIN: u32 = 21;
    own_status("CapEff")
        .and_then(|set| u64::from_str_radix(&set, 16).ok())
        .is_some_and(|set| set & (1 << CAP_SYS_ADMIN) != 0)
}

fn cgroup() -> Finding {
    const NAME: &str = "cgroup v2";
    let Some(mount) = cgroup2_mount() else {
        return Finding::warn(NAME, "not mounted (cgroup v1 only, or none)");
    };
    let own = read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let own = if own.is_empty() { mount.clone() } else { mount.join(own) };
    if !own.join("cgroup.procs").exists() {
        return Finding::warn(
            NAME,
            format!("mounted on {}, but our own cgroup is outside of it", mount.display()),
        );
    }
    let kind = read_to_string(own.join("cgroup.type")).unwrap_or_default();
    if kind.contains("threaded") || kind.contains("invalid") {
        return Finding::warn(
            NAME,
            format!("{} is {}: below it nothing but threads can be grouped", own.display(), kind.trim()),
        );
    }
    let hybrid = if mount == Path::new("/sys/fs/cgroup") { "" } else { " (hybrid: controllers are v1)" };
    match access(&own, Access::WRITE_OK) {
        Ok(()) => Finding::ok(NAME, format!("{} is ours to write{hybrid}", own.display())),
        Err(error) => Finding::warn(NAME, format!("{} is not ours to write: {error}{hybrid}", own.display())),
    }
}

fn cgroup2_mount() -> Option<PathBuf> {
    // In mountinfo the mount point is the fifth field, and the type follows the lone dash.
    read_to_string("/proc/self/mountinfo").ok()?.lines().find_map(|line| {
        let (mount, source) = line.split_once(" - ")?;
        source.starts_with("cgroup2 ").then(|| mount.split(' ').nth(4).map(PathBuf::from))?
    })
}

fn seccomp() -> Finding {
    const NAME: &str = "seccomp";
    match own_status("Seccomp").as_deref() {
        Some("0") => Finding::ok(NAME, "no filter"),
        Some("1") => Finding::warn(NAME, "strict mode"),
        Some("2") => {
            let filters = own_status("Seccomp_filters").unwrap_or_else(|| "some".to_owned());
            Finding::warn(
                NAME,
                format!("filtered ({filters} filters): calls such as clone or pidfd_open may be refused"),
            )
        }
        _ => Finding::warn(NAME, "unknown: /proc/self/status does not tell"),
    }
}

fn no_new_privs() -> Finding {
    const NAME: &str = "no_new_privs";
    match own_status("NoNewPrivs").as_deref() {
        Some("0") => Finding::ok(NAME, "off: setuid programs work"),
        Some(_) => Finding::warn(NAME, "on: setuid programs run without their privileges"),
        None => Finding::warn(NAME, "unknown: /proc/self/status does not tell"),
    }
}

pub(super) fn limits() -> Vec<Finding> {
    vec![
        limit("open files", Resource::Nofile, FEW_FILES),
        limit("processes", Resource::Nproc, FEW_PROCESSES),
        limit("file size", Resource::Fsize, SMALL_FILE),
        fact("pid_max", "/proc/sys/kernel/pid_max"),
        memfd_noexec(),
    ]
}

/// A host with some workers needs as much.
const FEW_FILES: u64 = 64;
const FEW_PROCESSES: u64 = 64;
/// The keeper's program has 1.2 MB, and ledgers grow to some.
const SMALL_FILE: u64 = 8 << 20;

fn limit(name: &'static str, resource: Resource, enough: u64) -> Finding {
    let words = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
    let limit = getrlimit(resource);
    let detail = format!("{} (may be raised to {})", words(limit.current), words(limit.maximum));
    if limit.current.is_some_and(|current| current < enough) {
        return Finding::warn(name, format!("{detail}: a start may fail; a small host needs {enough}"));
    }
    Finding::ok(name, detail)
}

fn fact(name: &'static str, path: &str) -> Finding {
    match sysctl(path) {
        Some(value) => Finding::ok(name, value),
        None => Finding::warn(name, format!("unknown: {path} cannot be read")),
    }
}

/// The keeper starts from a memfd, unless the machine forbids it.
fn memfd_noexec() -> Finding {
    const NAME: &str = "memfd_noexec";
    match sysctl("/proc/sys/vm/memfd_noexec").as_deref() {
        Some("0") | None => Finding::ok(NAME, "off: programs may start from memory"),
        Some("1") => Finding::ok(NAME, "1: programs may start from memory when they ask for it"),
        Some(level) => Finding::warn(NAME, format!("{level}: no program may start from memory")),
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
