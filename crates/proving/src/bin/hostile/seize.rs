//! Starts a daemon that seizes its shim (in a namespace: PID 1) with ptrace and never lets it continue, and a child in
//! the worker's group. With `seize stay` the worker's main process stays. With `seize leave` it exits with 5.

use snakepit_proving::tag::TagMapping;

use crate::process::{self, ReadyDescriptor};

pub(crate) fn run(worn: &TagMapping, ready: ReadyDescriptor, args: &[&str]) {
    let shim = rustix::process::getppid().expect("a shim").as_raw_nonzero().get();
    let fd = ready.fd();
    let (mut heard, mut told) = ([0; 1], [0; 2]);
    // SAFETY: pipe writes two descriptors into the array.
    assert_eq!(unsafe { libc::pipe(told.as_mut_ptr()) }, 0, "pipe");
    process::fork(|| {
        process::setsid();
        seize(shim);
        ReadyDescriptor::inherited(fd).tell();
        // SAFETY: writes one byte from a valid buffer to our own pipe.
        unsafe { libc::write(told[1], heard.as_ptr().cast(), 1) };
        process::rest(worn);
    });
    process::fork(|| {
        ReadyDescriptor::inherited(fd).tell();
        process::rest(worn);
    });
    // SAFETY: reads one byte into a valid buffer from our own pipe.
    unsafe { libc::read(told[0], heard.as_mut_ptr().cast(), 1) };
    ready.tell();
    match args {
        ["leave"] => std::process::exit(5),
        ["stay"] => process::rest(worn),
        _ => panic!("seize stay, or seize leave"),
    }
}

fn seize(pid: i32) {
    let null = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: these requests take numbers and touch none of our memory.
    let seized = unsafe {
        libc::ptrace(libc::PTRACE_SEIZE, pid, null, null) == 0
            && libc::ptrace(libc::PTRACE_INTERRUPT, pid, null, null) == 0
    };
    assert!(seized, "seize process {pid}: {}", std::io::Error::last_os_error());
    let mut status = 0;
    // SAFETY: waits for the stop of our tracee.
    let stopped = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) };
    assert_eq!(stopped, pid, "wait for the stop: {}", std::io::Error::last_os_error());
}
