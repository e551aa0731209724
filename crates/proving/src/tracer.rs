//! A debugger that seizes a process and reaps it only when told to.

use std::io;

/// A process that the calling thread traces.
pub struct Tracer(i32);

impl Tracer {
    /// Seizes a process, which continues to run.
    pub fn seize(pid: i32) -> io::Result<Self> {
        let null = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: the request takes numbers and touches none of our memory.
        match unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, null, null) } {
            0 => Ok(Self(pid)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Waits until a signal has stopped the process, which then stays stopped.
    pub fn await_stop(&self) {
        let mut status = 0;
        // SAFETY: waits for our tracee, with a valid pointer to its status.
        let pid = unsafe { libc::waitpid(self.0, &raw mut status, libc::__WALL) };
        assert!(pid == self.0 && libc::WIFSTOPPED(status), "{pid}, status {status:#x}");
    }

    /// Lets the process continue.
    pub fn detach(self) {
        let null = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: the request takes numbers and touches none of our memory.
        let done = unsafe { libc::ptrace(libc::PTRACE_DETACH, self.0, null, null) };
        assert_eq!(done, 0, "detach: {}", io::Error::last_os_error());
    }

    /// Waits until the process has ended, which hands it over to its parent.
    pub fn let_go(self) {
        let mut status = 0;
        // SAFETY: waits for our tracee, with a valid pointer to its status.
        unsafe { libc::waitpid(self.0, &raw mut status, libc::__WALL) };
    }
}
