//! Creates processes: forks with a pidfd, and processes that borrow memory.

use std::ffi::{c_int, c_long, c_void};
use std::io::{Error, Result};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, Ordering};

use super::{EINVAL, ENOSYS, EPERM, SIGCHLD, SIGKILL, check, check_long, errno, owned};
use super::{pidfd_open, send_signal, wait_child};

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
    fn mmap(at: *mut c_void, len: usize, prot: c_int, flags: c_int, fd: c_int, offset: i64) -> *mut c_void;
    fn munmap(at: *mut c_void, len: usize) -> c_int;
    fn clone(
        start: extern "C" fn(*mut c_void) -> c_int,
        stack: *mut c_void,
        flags: c_int,
        arg: *mut c_void,
        ...
    ) -> c_int;
}

pub(crate) const CLONE_NEWNS: u64 = 0x2_0000;
pub(crate) const CLONE_NEWUSER: u64 = 0x1000_0000;
pub(crate) const CLONE_NEWPID: u64 = 0x2000_0000;

const CLONE_PIDFD: u64 = 0x1000;

/// Which process the code runs in after [`clone_process`].
pub(crate) enum Cloned {
    Child,
    Parent { pid: c_int, pidfd: OwnedFd },
}

/// The system calls that fork with a pidfd, best first. Containers refuse the newer ones: the default profiles of
/// Docker and containerd answer ENOSYS to `clone3`, because a filter cannot read its arguments.
#[derive(Clone, Copy, PartialEq)]
enum CloneCall {
    Clone3,
    Clone,
    /// Forks without `CLONE_PIDFD`. The pidfd is opened afterwards, which is safe because only the caller reaps the
    /// child.
    Fork,
}

/// Why another call may succeed where one has failed.
#[derive(PartialEq)]
enum CloneRefusal {
    /// The system does not have the call.
    ForGood,
    /// The call exists, but a filter or a missing privilege refuses it with these flags.
    WithTheseFlags,
}

impl CloneCall {
    const ALL: [Self; 3] = [Self::Clone3, Self::Clone, Self::Fork];

    fn refused(self, error: &Error) -> Option<CloneRefusal> {
        match (self, errno(error)) {
            (Self::Clone3, ENOSYS) | (Self::Clone, EINVAL) => Some(CloneRefusal::ForGood),
            (Self::Clone3, EPERM) => Some(CloneRefusal::WithTheseFlags),
            _ => None,
        }
    }

    fn take(self, flags: u64) -> Result<Cloned> {
        let mut pidfd: c_int = -1;
        let result = match self {
            Self::Clone3 => clone3(flags | CLONE_PIDFD, &mut pidfd),
            Self::Clone => old_clone(flags | CLONE_PIDFD, &mut pidfd),
            Self::Fork => old_clone(flags, &mut pidfd),
        };
        match check_long(result)? as c_int {
            0 => Ok(Cloned::Child),
            pid if pidfd >= 0 => Ok(Cloned::Parent { pid, pidfd: owned(pidfd) }),
            pid => match pidfd_open(pid) {
                Ok(pidfd) => Ok(Cloned::Parent { pid, pidfd }),
                Err(error) => {
                    // A process without a pidfd cannot be tracked, so it must not live.
                    let _ = send_signal(pid, SIGKILL);
                    let _ = wait_child(pid, 0);
                    Err(error)
                }
            },
        }
    }
}

/// Forks, with new namespaces if the flags ask for them. The parent also gets a pidfd.
pub(crate) fn clone_process(flags: u64) -> Result<Cloned> {
    // The number of calls in `CloneCall::ALL` that this system does not have, found out once.
    static ABSENT: AtomicU8 = AtomicU8::new(0);
    let absent = usize::from(ABSENT.load(Ordering::Relaxed));
    let mut last = Error::from_raw_os_error(ENOSYS);
    for (index, way) in CloneCall::ALL.iter().enumerate().skip(absent) {
        match way.take(flags) {
            Ok(cloned) => return Ok(cloned),
            Err(error) => {
                let refused = way.refused(&error);
                last = error;
                match refused {
                    Some(CloneRefusal::ForGood) => ABSENT.store(index as u8 + 1, Ordering::Relaxed),
                    Some(CloneRefusal::WithTheseFlags) => {}
                    None => break,
                }
            }
        }
    }
    Err(last)
}

fn clone3(flags: u64, pidfd: &mut c_int) -> c_long {
    const SYS_CLONE3: c_long = 435;
    #[repr(C)]
    struct CloneArgs {
        flags: u64,
        pidfd: u64,
        child_tid: u64,
        parent_tid: u64,
        exit_signal: u64,
        stack: u64,
        stack_size: u64,
        tls: u64,
    }
    let args = CloneArgs {
        flags,
        pidfd: std::ptr::from_mut(pidfd) as u64,
        child_tid: 0,
        parent_tid: 0,
        exit_signal: SIGCHLD as u64,
        stack: 0,
        stack_size: 0,
        tls: 0,
    };
    // SAFETY: without CLONE_VM, this call is a fork. The keeper has one thread, so the copy finds the allocator and
    // everything else in a usable state.
    unsafe { syscall(SYS_CLONE3, &raw const args, size_of::<CloneArgs>()) }
}

fn old_clone(flags: u64, pidfd: &mut c_int) -> c_long {
    #[cfg(target_arch = "x86_64")]
    const SYS_CLONE: c_long = 56;
    #[cfg(not(target_arch = "x86_64"))]
    const SYS_CLONE: c_long = 220;
    const NONE: c_long = 0;
    // flags, stack, the place for the pidfd; then child_tid and tls, whose order differs between processors. Both are
    // absent here.
    // SAFETY: as in `clone3`. The child gets no stack of its own, so it continues with its copy of this one.
    unsafe {
        syscall(SYS_CLONE, (flags | SIGCHLD as u64) as c_long, NONE, std::ptr::from_mut(pidfd), NONE, NONE)
    }
}

/// The stack size of a process that borrows its parent's memory.
const BORROWED_STACK: usize = 256 * 1024;

/// A process that borrows the caller's memory until it runs a program or ends, like a process of `posix_spawn`. No page
/// is copied for it, and none has to be freed before its program can run.
pub(crate) struct Borrower {
    pub(crate) pid: c_int,
    stack: *mut c_void,
}

/// Creates a process that borrows the caller's memory. `CLONE_VFORK` is not used, because it would suspend the caller
/// in an uninterruptible sleep: the caller could not be stopped, and would count as load.
///
/// Until the borrower has run its program or ended, the caller may wait and signal, but must not allocate: the borrower
/// uses the allocator and the thread-local storage. The value in `with` must stay in place. State that the kernel keeps
/// per memory and not per process, such as `oom_score_adj`, is shared with the caller.
pub(crate) fn lend_memory_to<T>(task: fn(&T) -> !, with: &T) -> Result<Borrower> {
    const CLONE_VM: c_int = 0x100;
    const PROT_READ_WRITE: c_int = 1 | 2;
    const MAP_PRIVATE_ANONYMOUS_STACK: c_int = 0x2 | 0x20 | 0x2_0000;
    struct LentTask<'a, T> {
        task: fn(&T) -> !,
        with: &'a T,
    }
    extern "C" fn start<T>(lent: *mut c_void) -> c_int {
        // SAFETY: the pointer refers to the value that the caller has put on this stack.
        let lent = unsafe { &*lent.cast::<LentTask<'_, T>>() };
        (lent.task)(lent.with)
    }
    // SAFETY: the stack is a fresh mapping that no other code knows. The child's input is at its end. Below it, the
    // child's frames grow down, aligned. The child never returns into the caller's frames, because `task` does not
    // return. The caller leaves allocator and thread-local storage to the child, as it has promised. Both may write
    // only one word, errno, and the caller does not read it from any call that can fail meanwhile.
    unsafe {
        let null = std::ptr::null_mut();
        let stack = mmap(null, BORROWED_STACK, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS_STACK, -1, 0);
        if stack as isize == -1 {
            return Err(Error::last_os_error());
        }
        let top = stack.byte_add(BORROWED_STACK - size_of::<LentTask<'_, T>>().next_multiple_of(64));
        top.cast::<LentTask<'_, T>>().write(LentTask { task, with });
        match check(clone(start::<T>, top, CLONE_VM | SIGCHLD, top)) {
            Ok(pid) => Ok(Borrower { pid, stack }),
            Err(error) => {
                munmap(stack, BORROWED_STACK);
                Err(error)
            }
        }
    }
}

impl Borrower {
    /// Takes the memory back from a process that has run its program or ended.
    pub(crate) fn returned(self) -> c_int {
        // SAFETY: no process runs on this stack any more.
        unsafe { munmap(self.stack, BORROWED_STACK) };
        self.pid
    }
}
