//! Creates a cgroup below its own, and one below that with a child in it. With `subgroup stay` the worker's main
//! process stays. With `subgroup leave` it exits with 5.

use snakepit_proving::cgroup::TestCgroup;
use snakepit_proving::tag::TagMapping;

use crate::process::{self, ReadyDescriptor};

pub(crate) fn run(worn: &TagMapping, ready: ReadyDescriptor, args: &[&str]) {
    let group = TestCgroup::below_ours("").expect("a cgroup below our own");
    let inner = group.dir().join("inner");
    std::fs::create_dir(&inner).expect("a cgroup below that");
    // Custody must remove the group.
    std::mem::forget(group);
    let fd = ready.fd();
    let (mut heard, mut told) = ([0; 1], [0; 2]);
    // SAFETY: pipe writes two descriptors into the array.
    assert_eq!(unsafe { libc::pipe(told.as_mut_ptr()) }, 0, "pipe");
    process::fork(|| {
        process::setsid();
        std::fs::write(inner.join("cgroup.procs"), "0").expect("join it");
        ReadyDescriptor::inherited(fd).tell();
        // SAFETY: writes one byte from a valid buffer to our own pipe.
        unsafe { libc::write(told[1], heard.as_ptr().cast(), 1) };
        process::rest(worn);
    });
    // SAFETY: reads one byte into a valid buffer from our own pipe.
    unsafe { libc::read(told[0], heard.as_mut_ptr().cast(), 1) };
    ready.tell();
    match args {
        ["leave"] => std::process::exit(5),
        ["stay"] => process::rest(worn),
        _ => panic!("subgroup stay, or subgroup leave"),
    }
}
