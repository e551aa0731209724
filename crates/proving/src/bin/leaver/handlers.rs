//! Orders about the process's signal handlers, and about forks that the library does not know of.

use std::sync::atomic::{AtomicI32, Ordering};

use crate::{number, tell};

static COPY: AtomicI32 = AtomicI32::new(0);
static HEARD: AtomicI32 = AtomicI32::new(0);

pub(crate) fn obey(words: &[&str]) -> bool {
    match words {
        ["handle", signal] => handle(number(signal)),
        ["ignore", signal] => {
            // SAFETY: a plain change of a disposition.
            unsafe { libc::signal(number(signal), libc::SIG_IGN) };
            tell("ok");
        }
        ["disposition", signal] => tell(&disposition(number(signal))),
        ["heard"] => tell(&HEARD.load(Ordering::SeqCst).to_string()),
        ["raise", signal] => {
            // SAFETY: there is no precondition. A handler has run in this thread when the call returns.
            unsafe { libc::raise(number(signal)) };
            tell("ok");
        }
        ["fork"] => fork(),
        ["wait-for-the-copy"] => wait_for_the_copy(),
        _ => return false,
    }
    true
}

extern "C" fn foreign(signal: libc::c_int) {
    HEARD.store(signal, Ordering::SeqCst);
}

/// Installs a handler of the host, with flags and a mask that must be restored unchanged.
fn handle(signal: i32) {
    // SAFETY: the handler does one atomic store. The rest of the action is a valid mask and known flags.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = foreign as extern "C" fn(libc::c_int) as libc::sighandler_t;
        action.sa_flags = libc::SA_NODEFER;
        libc::sigaddset(&raw mut action.sa_mask, libc::SIGUSR2);
        assert_eq!(libc::sigaction(signal, &raw const action, std::ptr::null_mut()), 0);
    }
    tell("ok");
}

fn disposition(signal: i32) -> String {
    // SAFETY: only reads the current action.
    let (action, masked) = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(signal, std::ptr::null(), &raw mut action), 0);
        (action, libc::sigismember(&raw const action.sa_mask, libc::SIGUSR2) == 1)
    };
    let foreign = foreign as extern "C" fn(libc::c_int) as libc::sighandler_t;
    let who = match action.sa_sigaction {
        libc::SIG_DFL => "default",
        libc::SIG_IGN => "ignored",
        other if other == foreign => "foreign",
        _ => "noted",
    };
    let flag = |flag, name| if action.sa_flags & flag == 0 { "" } else { name };
    let masked = if masked { " masked" } else { "" };
    format!("{who}{}{}{masked}", flag(libc::SA_NODEFER, " nodefer"), flag(libc::SA_RESTART, " restart"))
}

/// Forks like a library that the host links and that snakepit does not know of.
fn fork() {
    // SAFETY: the copy makes two kinds of system calls and never returns.
    match unsafe { libc::fork() } {
        0 => loop {
            // SAFETY: as above. A test that fails kills the original, and no other process knows the copy.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::pause();
            }
        },
        pid => {
            COPY.store(pid, Ordering::SeqCst);
            tell(&pid.to_string());
        }
    }
}

fn wait_for_the_copy() {
    let mut status = 0;
    // SAFETY: it is our own child, and only this call waits for it.
    unsafe { libc::waitpid(COPY.load(Ordering::SeqCst), &raw mut status, 0) };
    if libc::WIFSIGNALED(status) {
        tell(&format!("signal {}", libc::WTERMSIG(status)));
    } else {
        tell(&format!("code {}", libc::WEXITSTATUS(status)));
    }
}
