//! System calls that the kernel refuses to a host and to all processes that it starts, as a container's seccomp profile
//! does.

use std::io;

/// A system call, the relevant bits of its first argument, and the error that it gets.
#[derive(Clone, Copy, Debug)]
pub struct RefusedSyscall {
    /// The number of the call.
    pub call: i64,
    /// The call is refused only if one of these bits is set in its first argument. 0 means always.
    pub bits: u32,
    /// The error that it gets.
    pub errno: i32,
}

/// Makes the kernel refuse these calls to the calling process from now on. Allocates nothing once `program` exists, so
/// it may be called between fork and exec.
pub fn apply(program: &[libc::sock_filter]) -> io::Result<()> {
    let filter = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(io::Error::other)?,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: integers, and a program that lives through the call. The kernel copies it.
    let applied = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
    };
    if applied { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the filter for these refusals, which allows everything else.
pub fn program(refused: &[RefusedSyscall]) -> Vec<libc::sock_filter> {
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const ANY_BIT: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    const CALL_AT: u32 = 0;
    const FIRST_ARGUMENT_AT: u32 = 16;
    let word = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut program = Vec::new();
    for refused in refused {
        let error = libc::SECCOMP_RET_ERRNO | refused.errno as u32;
        program.push(word(LOAD, CALL_AT, 0, 0));
        if refused.bits == 0 {
            program.push(word(EQUAL, refused.call as u32, 0, 1));
        } else {
            program.push(word(EQUAL, refused.call as u32, 0, 3));
            program.push(word(LOAD, FIRST_ARGUMENT_AT, 0, 0));
            program.push(word(ANY_BIT, refused.bits, 0, 1));
        }
        program.push(word(RETURN, error, 0, 0));
    }
    program.push(word(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0));
    program
}
