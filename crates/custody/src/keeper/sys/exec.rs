//! Runs a program in place of the caller. Compiled into both keepers, so the file uses only std.

use std::ffi::{CStr, c_char, c_int};
use std::io::Error;

unsafe extern "C" {
    fn execve(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
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
