//! Runs many short-lived workers one after another, which makes small leaks visible.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use snakepit_custody::{ExitStatus, Run};
use snakepit_proving::deadline::{let_pass, recheck};
use snakepit_proving::{Deadline, census};

use crate::orders::OrderRefusal;
use crate::spawn;

/// The number of workers before the first count, to exclude what is allocated only once.
const WARM_UP: usize = 20;

pub(crate) fn run(run: &Run, count: usize, threads: usize) -> Result<String, OrderRefusal> {
    lives(run, WARM_UP, threads)?;
    let before = ProcessCounts::take(run);
    lives(run, count, threads)?;
    let after = ProcessCounts::take(run);
    Ok(format!(
        "host_before={} host_after={} keeper_before={} keeper_after={} shims_before={} shims_after={} zombies={}",
        before.host, after.host, before.keeper, after.keeper, before.children, after.children, after.zombies
    ))
}

#[derive(PartialEq, Eq)]
struct ProcessCounts {
    host: usize,
    keeper: usize,
    children: usize,
    zombies: usize,
}

impl ProcessCounts {
    fn take(run: &Run) -> Self {
        let me = std::process::id().cast_signed();
        let keeper = run.keeper_pid().map_or(0, snakepit_custody::Pid::as_raw);
        let zombies = |parent| census::children(parent).iter().filter(|child| child.is_zombie()).count();
        let look = || Self {
            host: census::open_descriptors(me),
            keeper: census::open_descriptors(keeper),
            children: census::children(keeper).len(),
            zombies: zombies(me) + zombies(keeper),
        };
        // The host learns of the last worker's end a moment before the keeper has released the worker's resources. The
        // keeper may also be making a shim for the next worker. Only stable counts matter.
        let mut last = look();
        recheck(Deadline::patient(), "a keeper at rest", || {
            let_pass(Duration::from_millis(50));
            let now = look();
            let rests = now == last;
            last = now;
            rests.then_some(())
        });
        last
    }
}

fn lives(run: &Run, count: usize, threads: usize) -> Result<(), OrderRefusal> {
    let left = AtomicUsize::new(count);
    let take = || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
    std::thread::scope(|scope| {
        let one = || -> Result<(), OrderRefusal> {
            while take() {
                let exit = run.spawn(spawn::quiet("/bin/true"))?.wait();
                if exit.status != ExitStatus::Code(0) {
                    return Err(OrderRefusal::new(format!("/bin/true ended with {:?}", exit.status)));
                }
            }
            Ok(())
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a churning thread"))
    })
}
