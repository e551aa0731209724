//! The system calls that are the same on all systems: they need no constants. Compiled into both keepers, so the file
//! uses only std.

use std::ffi::{CStr, c_char, c_int};
use std::io::{Error, Result};
use std::os::fd::RawFd;

unsafe extern "C" {
    fn _exit(status: c_int) -> !;
    fn getpid() -> c_int;
    fn getppid() -> c_int;
    fn setsid() -> c_int;
    fn setpgid(pid: c_int, group: c_int) -> c_int;
    fn dup2(from: c_int, to: c_int) -> c_int;
    fn chdir(path: *const c_char) -> c_int;
    fn execve(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
}

pub(super) fn check(result: c_int) -> Result<c_int> {
    if result < 0 { Err(Error::last_os_error()) } else { Ok(result) }
}

pub(crate) fn exit(status: c_int) -> ! {
    // SAFETY: no precondition; skips destructors, which a forked copy must not run.
    unsafe { _exit(status) }
}

pub(crate) fn pid() -> c_int {
    // SAFETY: no precondition.
    unsafe { getpid() }
}

pub(crate) fn parent_pid() -> c_int {
    // SAFETY: no precondition.
    unsafe { getppid() }
}

pub(crate) fn new_session() -> Result<()> {
    // SAFETY: no precondition.
    check(unsafe { setsid() }).map(drop)
}

pub(crate) fn new_group() -> Result<()> {
    // SAFETY: integers.
    check(unsafe { setpgid(0, 0) }).map(drop)
}

/// Duplicates a descriptor to `target`. The copy survives exec.
pub(crate) fn duplicate_to(fd: RawFd, target: RawFd) -> Result<()> {
    // SAFETY: integers; the previous descriptor at `target` is given up on purpose.
    check(unsafe { dup2(fd, target) }).map(drop)
}

pub(crate) fn change_dir(path: &CStr) -> Result<()> {
    // SAFETY: a NUL-terminated string.
    check(unsafe { chdir(path.as_ptr()) }).map(drop)
}

/// A program with its arguments and its environment. Built ahead of exec, so that nothing is allocated once the
/// worker's limits apply.
pub(crate) struct ExecProgram<'a> {
    path: &'a CStr,
    argv: Vec<*const c_char>,
    envp: Vec<*const c_char>,
}

impl<'a> ExecProgram<'a> {
    pub(crate) fn new(
        path: &'a CStr,
        argv: impl Iterator<Item = &'a CStr>,
        envp: impl Iterator<Item = &'a CStr>,
    ) -> Self {
        let argv = argv.map(CStr::as_ptr).chain([std::ptr::null()]).collect();
        let envp = envp.map(CStr::as_ptr).chain([std::ptr::null()]).collect();
        Self { path, argv, envp }
    }

    /// Runs the program in place of this one. Returns only if that fails.
    pub(crate) fn run(&self) -> Error {
        // SAFETY: both arrays end with null and point to NUL-terminated strings, which live as long as `self` does.
        unsafe { execve(self.path.as_ptr(), self.argv.as_ptr(), self.envp.as_ptr()) };
        Error::last_os_error()
    }
}
