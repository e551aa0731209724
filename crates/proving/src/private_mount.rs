//! Mounts in the mount namespace of one thread. No other process sees them, and they vanish with the thread.

use std::ffi::CString;
use std::io;
use std::path::Path;

/// Returns why nothing can be mounted here, or `None` if it can.
pub fn refusal() -> Option<String> {
    // SAFETY: unshare affects only this thread, which then ends.
    let try_it = || unsafe { (libc::unshare(libc::CLONE_NEWNS) != 0).then(io::Error::last_os_error) };
    let refused = std::thread::spawn(try_it).join().expect("a thread")?;
    Some(format!("nothing can be mounted ({refused})"))
}

/// Runs `body` on a thread with a separate mount namespace. Every process that it starts shares the namespace, and the
/// mounts vanish with the last of them.
pub fn with_private_mounts(body: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: unshare affects only this thread, which ends with the test.
            let shared = unsafe { libc::unshare(libc::CLONE_NEWNS) };
            assert_eq!(shared, 0, "unshare: {}", io::Error::last_os_error());
            mount("none", Path::new("/"), "", libc::MS_REC | libc::MS_PRIVATE, "");
            body();
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Mounts a small memory file system.
pub fn mount_tmpfs(at: &Path, options: &str) {
    mount("tmpfs", at, "tmpfs", 0, options);
}

/// Mounts a `/proc` over the existing one.
pub fn mount_proc(options: &str) {
    mount("proc", Path::new("/proc"), "proc", 0, options);
}

/// Changes the options of a mounted file system.
pub fn remount(at: &Path, options: &str) {
    mount("none", at, "", libc::MS_REMOUNT, options);
}

/// Makes a mounted file system read-only.
pub fn make_read_only(at: &Path) {
    mount("none", at, "", libc::MS_REMOUNT | libc::MS_RDONLY, "");
}

fn mount(source: &str, at: &Path, kind: &str, flags: libc::c_ulong, options: &str) {
    let text = |text: &str| CString::new(text).expect("no NUL");
    let place = text(at.to_str().expect("a printable path"));
    let (source, kind, options) = (text(source), text(kind), text(options));
    // SAFETY: all pointers are to strings that live through the call.
    let done = unsafe {
        libc::mount(source.as_ptr(), place.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast())
    };
    assert_eq!(done, 0, "mount at {}: {}", at.display(), io::Error::last_os_error());
}
