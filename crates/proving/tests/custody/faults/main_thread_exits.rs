//! The host's main thread exits while other threads live on: a zombie leader, but a living process. The workers live
//! on, the run does not count as dead, and the workers die with the process.

use snakepit_proving::deadline::recheck;
use snakepit_proving::{Case, CensusEntry, Deadline};

super::each_tier!(main_thread_exits);

fn main_thread_exits(case: &mut Case) {
    let mut host = case.host_with(3, "family");
    case.must_be_populated(9);
    host.ask("main-thread-exits").expect("go on in another thread");
    let pid = host.process().pid();
    recheck(Deadline::patient(), "the main thread's end", || {
        CensusEntry::read(pid).is_some_and(|found| found.is_zombie()).then_some(())
    });
    host.spawn(1, "family");
    case.note(&host);
    case.must_be_populated(12);
    case.next_start();
    case.must_be_populated(12);
    host.spawn(1, "family");
    case.note(&host);
    case.must_be_populated(15);
    host.kill();
    case.verdict();
}
