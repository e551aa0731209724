//! The ways in which a host exits.

/// Panics where unwinding is impossible: the runtime aborts, as with `panic = "abort"`.
pub(crate) fn panic_without_unwinding() -> ! {
    extern "C" fn cannot_unwind() -> ! {
        panic!("ordered to panic where nothing can unwind");
    }
    cannot_unwind()
}

/// Ends only the calling thread. If it is the main thread, a zombie leader and a living process remain.
pub(crate) fn end_this_thread() -> ! {
    // SAFETY: the thread owns nothing that another thread waits for. `exit` ends it without unwinding.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    unreachable!("a thread that has ended")
}

/// Allocates until the limit of the memory cgroup kills the process. A bound protects the machine's memory.
pub(crate) fn eat_memory() -> ! {
    let mut eaten = Vec::new();
    for round in 0..1024_usize {
        eaten.push(vec![round as u8 | 1; 1 << 20]);
    }
    std::hint::black_box(&eaten);
    panic!("the memory cgroup did not hold");
}

/// Forks a copy of this process that holds all of its descriptors and sleeps.
pub(crate) fn fork_a_sleeping_copy() -> i32 {
    // SAFETY: the child makes one kind of system call and never returns.
    match unsafe { libc::fork() } {
        0 => loop {
            // SAFETY: as above.
            unsafe { libc::pause() };
        },
        pid => pid,
    }
}

/// Forks a copy of this process that acts on what it believes to be its own. Returns its wait status, or -1 if it
/// hangs.
pub(crate) fn fork_a_copy_that(act: impl FnOnce()) -> i32 {
    // SAFETY: a copy of a process with threads may find a lock that is held forever. The wait below is bounded, and
    // then the copy is killed.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        act();
        // SAFETY: leaves without running what the original registered.
        unsafe { libc::_exit(0) };
    }
    let copy = snakepit_proving::ObservedProcess::of(pid);
    let in_time = copy.ends_before(snakepit_proving::Deadline::after(std::time::Duration::from_secs(5)));
    copy.signal(rustix::process::Signal::KILL);
    let mut status = 0;
    // SAFETY: it is our own child, and only this call waits for it.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    if in_time { status } else { -1 }
}
