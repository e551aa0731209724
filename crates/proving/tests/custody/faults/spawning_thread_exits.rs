//! The thread that spawned, and the thread that opened the run, exit. The workers live on, and die with the process.

use snakepit_proving::Case;

super::each_tier!(spawning_thread, opening_thread);

fn spawning_thread(case: &mut Case) {
    let mut host = case.host();
    let told = host.ask("spawn-in-thread 3 family").expect("spawn in a thread that exits");
    host.announced(&told);
    must_live_on(case, host);
}

fn opening_thread(case: &mut Case) {
    case.options = case.options.clone().word("thread=yes");
    let host = case.host_with(3, "family");
    must_live_on(case, host);
}

fn must_live_on(case: &mut Case, mut host: snakepit_proving::HostProcess) {
    case.note(&host);
    // A parent-death signal would come with the thread's end, which is long past after this spawn.
    host.spawn(1, "family");
    case.note(&host);
    case.must_be_populated(12);
    host.kill();
    case.verdict();
}
