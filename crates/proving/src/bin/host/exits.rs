//! The ways in which a host exits.

/// A panic where unwinding is impossible: the runtime aborts, as it does with `panic = "abort"`.
pub(crate) fn panic_without_unwinding() -> ! {
    extern "C" fn cannot_unwind() -> ! {
        panic!("ordered to panic where nothing can unwind");
    }
    cannot_unwind()
}

/// Ends the calling thread alone, which for the main one leaves a zombie leader and a living process.
pub(crate) fn end_this_thread() -> ! {
    // SAFETY: the thread owns nothing that another one waits for; `exit` ends it without unwinding.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    unreachable!("a thread that has ended")
}

/// Allocates until the memory cgroup's limit kills us; a bound keeps it from the machine's.
pub(crate) fn eat_memory() -> ! {
    let mut eaten = Vec::new();
    for round in 0..1024_usize {
        eaten.push(vec![round as u8 | 1; 1 << 20]);
    }
    std::hint::black_box(&eaten);
    panic!("the memory cgroup did not hold");
}

/// A copy of this process that holds all of its descriptors and does nothing.
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

/// A copy of this process that does something with what it believes to be its own; its wait status, or -1
/// when it hangs.
pub(crate) fn fork_a_copy_that(act: impl FnOnce()) -> i32 {
    // SAFETY: a copy of a process with threads may find a lock taken for ever; the wait below is bounded,
    // and the copy is killed then.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        act();
        // SAFETY: leaves without what the original registered.
        unsafe { libc::_exit(0) };
    }
    let copy = snakepit_proving::ObservedProcess::of(pid);
    let in_time = copy.ends_before(snakepit_proving::Deadline::after(std::time::Duration::from_secs(5)));
    copy.signal(rustix::process::Signal::KILL);
    let mut status = 0;
    // SAFETY: a child of ours that nobody else waits for.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    if in_time { status } else { -1 }
}
