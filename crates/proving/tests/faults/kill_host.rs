//! `kill -9` of the host.

use snakepit_proving::Case;

super::each_tier!(with_one_worker, with_ten_workers, with_100_workers, with_500_workers);

fn with_one_worker(case: &mut Case) {
    kill(case, 1, "family", 3);
}

pub(super) fn with_ten_workers(case: &mut Case) {
    kill(case, 10, "family", 3);
}

fn with_100_workers(case: &mut Case) {
    kill(case, 100, "family", 3);
}

fn with_500_workers(case: &mut Case) {
    kill(case, 500, "stand", 1);
}

fn kill(case: &mut Case, count: usize, kind: &str, processes: usize) {
    let mut host = case.host_with(count, kind);
    case.must_be_populated(count * processes);
    host.kill();
    case.verdict();
}
