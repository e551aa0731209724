//! The floor under custody: the same process tree with only PDEATHSIG to hold it.
//!
//! `floor plain|chain|pidns|pidns-proc N PROGRAM ARGS…` builds the tree below the host that started it, prints `ready`
//! when all N programs run, and dies with that host. It has no ledger, no gate and no group, and answers no requests.
//! The difference to this is the cost of custody. The benchmark compiles this file alone and links it statically, so
//! that its processes are as small as the keeper's. Therefore it depends only on std.

use std::ffi::{CString, c_char, c_int, c_long, c_ulong, c_void};
use std::io::{self, Read, Write};
use std::ptr;

const SIGKILL: c_ulong = 9;
const SIGCHLD: c_long = 17;
const PR_SET_PDEATHSIG: c_int = 1;
const CLONE_NEWNS: c_long = 0x0002_0000;
const CLONE_NEWPID: c_long = 0x2000_0000;
const MS_REC_PRIVATE: c_ulong = 0x4000 | 0x0004_0000;
#[cfg(target_arch = "aarch64")]
const SYS_CLONE: c_long = 220;
#[cfg(not(target_arch = "aarch64"))]
const SYS_CLONE: c_long = 56;

unsafe extern "C" {
    fn _exit(status: c_int) -> !;
    fn execv(path: *const c_char, argv: *const *const c_char) -> c_int;
    fn fork() -> c_int;
    fn mount(
        source: *const c_char,
        target: *const c_char,
        kind: *const c_char,
        flags: c_ulong,
        data: *const c_void,
    ) -> c_int;
    fn pause() -> c_int;
    fn prctl(option: c_int, arg: c_ulong) -> c_int;
    fn syscall(number: c_long, ...) -> c_long;
}

/// The tree between the host and its workers.
#[derive(Clone, Copy)]
enum FloorTree {
    /// host → this → worker
    Plain,
    /// host → this → shim → worker
    Chain,
    /// The same, with each shim as the init of a PID namespace. The number holds further clone flags.
    Namespace(c_long),
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, tree, count, program @ ..] = args.as_slice() else { die("usage: floor TREE N PROGRAM ARGS…") };
    let tree = match tree.as_str() {
        "plain" => FloorTree::Plain,
        "chain" => FloorTree::Chain,
        "pidns" => FloorTree::Namespace(0),
        "pidns-proc" => FloorTree::Namespace(CLONE_NEWNS),
        _ => die("unknown tree"),
    };
    let count: usize = count.parse().unwrap_or_else(|_| die("N is not a number"));
    let program: Vec<CString> =
        program.iter().map(|it| CString::new(it.as_str()).unwrap_or_else(|_| die("NUL"))).collect();
    let mut argv: Vec<*const c_char> = program.iter().map(|it| it.as_ptr()).collect();
    argv.push(ptr::null());

    die_with_parent();
    // Every worker holds the write end until its exec closes it. The end of file means that all of them run.
    let (mut all_run, running) = io::pipe().unwrap_or_else(|_| die("pipe"));
    for _ in 0..count {
        let shim = match tree {
            FloorTree::Plain => {
                worker(&argv);
                continue;
            }
            FloorTree::Chain => child(fork_plain),
            FloorTree::Namespace(flags) => child(|| fork_with(CLONE_NEWPID | flags)),
        };
        if shim {
            if matches!(tree, FloorTree::Namespace(CLONE_NEWNS)) {
                mount_proc();
            }
            worker(&argv);
            drop(running);
            rest();
        }
    }
    drop(running);
    all_run.read_to_end(&mut Vec::new()).unwrap_or_else(|_| die("pipe"));
    println!("ready");
    io::stdout().flush().unwrap_or_else(|_| die("stdout"));
    rest();
}

fn worker(argv: &[*const c_char]) {
    if child(fork_plain) {
        // SAFETY: argv is null-terminated, and its strings live as long as the program.
        unsafe { execv(argv[0], argv.as_ptr()) };
        die("exec");
    }
}

/// Forks. Returns true in the child, which then dies with its parent.
fn child(fork: impl FnOnce() -> c_long) -> bool {
    match fork() {
        0 => {
            die_with_parent();
            true
        }
        pid if pid > 0 => false,
        _ => die("fork"),
    }
}

fn die_with_parent() {
    // SAFETY: sets one attribute of the calling process.
    if unsafe { prctl(PR_SET_PDEATHSIG, SIGKILL) } != 0 {
        die("prctl");
    }
}

fn fork_plain() -> c_long {
    // SAFETY: this program has one thread, so the child may call whatever the parent may.
    c_long::from(unsafe { fork() })
}

fn fork_with(flags: c_long) -> c_long {
    // SAFETY: without a stack and without CLONE_VM, this is fork into new namespaces. One thread, as above.
    unsafe { syscall(SYS_CLONE, flags | SIGCHLD, 0 as c_long, 0 as c_long, 0 as c_long, 0 as c_long) }
}

fn mount_proc() {
    let (root, proc) = (c"/", c"/proc");
    // SAFETY: the strings are static, and null is allowed where it is passed.
    let failed = unsafe {
        mount(ptr::null(), root.as_ptr(), ptr::null(), MS_REC_PRIVATE, ptr::null()) != 0
            || mount(c"proc".as_ptr(), proc.as_ptr(), c"proc".as_ptr(), 0, ptr::null()) != 0
    };
    if failed {
        die("mount");
    }
}

fn rest() -> ! {
    loop {
        // SAFETY: waits for a signal and touches no memory.
        unsafe { pause() };
    }
}

fn die(why: &str) -> ! {
    eprintln!("floor: {why}: {}", io::Error::last_os_error());
    // SAFETY: ends the process. A forked child must not run its parent's exit handlers.
    unsafe { _exit(1) }
}
