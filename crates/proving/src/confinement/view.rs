//! `/proc` and control groups as runtimes show them, in a separate mount namespace.

use std::ffi::CString;
use std::io;
use std::path::Path;

use libc::{MS_BIND, MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_PRIVATE, MS_RDONLY, MS_REC, MS_REMOUNT, c_ulong};

/// What `/proc` shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProcView {
    /// Everything.
    Whole,
    /// Some files are covered and some are read-only, as in OCI runtimes.
    Masked,
    /// `ProtectProc=invisible`, and `/proc/sys` is read-only.
    Invisible,
    /// The same with `ProcSubset=pid`: only processes, and not even `/proc/sys`.
    ProcessesOnly,
}

/// Which control groups are visible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CgroupView {
    /// All of them, read-only.
    ReadOnly,
    /// None is mounted.
    Absent,
}

/// The files that OCI runtimes cover by default, because they reveal the machine or could change it.
const COVERED: [&str; 9] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/firmware",
];

/// The directories that OCI runtimes make read-only.
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

pub(super) fn enter(proc: ProcView, cgroups: CgroupView) -> io::Result<()> {
    // SAFETY: this affects the calling thread, which is the only one.
    check(unsafe { libc::unshare(libc::CLONE_NEWNS) }, "unshare")?;
    mount("none", "/", "", MS_REC | MS_PRIVATE, "")?;
    for place in cgroup_mounts()? {
        match cgroups {
            CgroupView::ReadOnly => mount("none", &place, "", MS_BIND | MS_REMOUNT | MS_RDONLY, "")?,
            CgroupView::Absent => unmount(&place)?,
        }
    }
    match proc {
        ProcView::Whole => Ok(()),
        ProcView::Masked => {
            COVERED.iter().try_for_each(|path| cover(path))?;
            READ_ONLY.iter().try_for_each(|path| make_read_only(path))
        }
        ProcView::Invisible => {
            mount_proc("hidepid=invisible")?;
            make_read_only("/proc/sys")
        }
        ProcView::ProcessesOnly => mount_proc("hidepid=invisible,subset=pid"),
    }
}

/// Returns where control groups of either version are mounted, the innermost first.
fn cgroup_mounts() -> io::Result<Vec<String>> {
    let table = std::fs::read_to_string("/proc/self/mounts")?;
    let mut places: Vec<String> = table
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let (place, kind) = (fields.next()?, fields.next()?);
            kind.starts_with("cgroup").then(|| place.to_owned())
        })
        .collect();
    places.reverse();
    Ok(places)
}

fn mount_proc(options: &str) -> io::Result<()> {
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, options)
}

fn cover(path: &str) -> io::Result<()> {
    match Path::new(path) {
        path if !path.exists() => Ok(()),
        dir if dir.is_dir() => mount("tmpfs", path, "tmpfs", MS_RDONLY, ""),
        _ => mount("/dev/null", path, "", MS_BIND, ""),
    }
}

fn make_read_only(path: &str) -> io::Result<()> {
    if !Path::new(path).exists() {
        return Ok(());
    }
    mount(path, path, "", MS_BIND | MS_REC, "")?;
    mount("none", path, "", MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, "")
}

fn mount(source: &str, place: &str, kind: &str, flags: c_ulong, options: &str) -> io::Result<()> {
    let what = format!("mount {place}");
    let text = |text: &str| CString::new(text).map_err(io::Error::other);
    let (source, place, kind, options) = (text(source)?, text(place)?, text(kind)?, text(options)?);
    let data = options.as_ptr().cast();
    // SAFETY: all pointers are to strings that live through the call.
    check(unsafe { libc::mount(source.as_ptr(), place.as_ptr(), kind.as_ptr(), flags, data) }, &what)
}

fn unmount(place: &str) -> io::Result<()> {
    let what = format!("unmount {place}");
    let place = CString::new(place).map_err(io::Error::other)?;
    // SAFETY: the string lives through the call.
    check(unsafe { libc::umount2(place.as_ptr(), libc::MNT_DETACH) }, &what)
}

fn check(result: libc::c_int, what: &str) -> io::Result<()> {
    if result >= 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    Err(io::Error::new(error.kind(), format!("{what}: {error}")))
}
