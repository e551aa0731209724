//! The kernel refuses newer system calls to the host and to all processes that it starts, as containers' seccomp
//! profiles do. The calls that the default profiles of Docker and containerd allow are enough for every tier except
//! `namespace`. The promise: whatever can work, works.

use snakepit_proving::{Case, GridTier, OpenAs, RefusedSyscall};

use super::expected;

const CLONE_PIDFD: u32 = 0x1000;

const fn refuse(call: i64, errno: i32) -> RefusedSyscall {
    RefusedSyscall { call, bits: 0, errno }
}

/// Defines one test per tier for each list of refusals.
macro_rules! each_tier_under {
    ($($name:ident: $refused:expr),+ $(,)?) => { $(
        mod $name {
            use super::*;

            #[test]
            fn namespace() {
                works(GridTier::Namespace, &$refused);
            }

            #[test]
            fn auto() {
                works(GridTier::Auto, &$refused);
            }

            #[test]
            fn shim() {
                works(GridTier::Shim, &$refused);
            }

            #[test]
            fn group() {
                works(GridTier::Group, &$refused);
            }
        }
    )+ };
}

each_tier_under!(
    clone3_does_not_exist: [refuse(libc::SYS_clone3, libc::ENOSYS)],
    clone_gives_no_pidfd: [
        refuse(libc::SYS_clone3, libc::ENOSYS),
        RefusedSyscall { call: libc::SYS_clone, bits: CLONE_PIDFD, errno: libc::EINVAL },
    ],
    close_range_does_not_exist: [refuse(libc::SYS_close_range, libc::ENOSYS)],
    everything_that_can_be_missed: [
        refuse(libc::SYS_clone3, libc::ENOSYS),
        refuse(libc::SYS_close_range, libc::EPERM),
        refuse(libc::SYS_renameat2, libc::ENOSYS),
        refuse(libc::SYS_sched_setattr, libc::EPERM),
        refuse(libc::SYS_sched_getattr, libc::EPERM),
        refuse(libc::SYS_setpriority, libc::EPERM),
    ],
);

fn works(tier: GridTier, refused: &[RefusedSyscall]) {
    let options = OpenAs { refused: refused.to_vec(), ..OpenAs::default() };
    let cell = expected::cell("refused_calls", tier);
    let mut case = Case::with(&super::programs(), tier, cell, options);
    let mut host = case.host_with(2, "family");
    case.must_be_populated(6);
    // A worker that inherited something from a sibling would keep the sibling's gate open.
    let worker = host.spawn(1, "exit 3 0").remove(0);
    let told = host.ask(&format!("wait {}", worker.id)).expect("wait");
    assert_eq!(told.get("code").map(String::as_str), Some("3"), "{told:?}");
    host.kill();
    case.verdict();
    case.finish();
}
