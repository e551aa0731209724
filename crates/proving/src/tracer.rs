//! A debugger: it seizes a process, and does not reap it before it is told to.

use std::io;

/// Somebody who is traced by the calling thread.
pub struct Tracer(i32);

impl Tracer {
    /// Seizes a process, which runs on.
    pub fn seize(pid: i32) -> io::Result<Self> {
        let null = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: the request takes numbers; no memory of ours is involved.
        match unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, null, null) } {
            0 => Ok(Self(pid)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Waits for its end, which hands it over to its parent.
    pub fn let_go(self) {
        let mut status = 0;
        // SAFETY: waits for our tracee, with a valid place for its status.
        unsafe { libc::waitpid(self.0, &raw mut status, libc::__WALL) };
    }
}
