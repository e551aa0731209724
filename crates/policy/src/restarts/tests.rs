//! Deaths and starts as a pool sees them, over minutes of simulated time.

use proptest::prelude::*;

use super::*;

const EVEN: fn() -> Chance = || Chance::of(0.5);
const SHORT: WorkerLife = WorkerLife { lived: Duration::from_millis(300), answered: false, was_used: false };
const SERVED: WorkerLife = WorkerLife { lived: Duration::from_mins(10), answered: true, was_used: true };

fn life_of(lived: Duration, answered: bool) -> WorkerLife {
    WorkerLife { lived, answered, was_used: answered }
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn log(workers: usize) -> RestartLog {
    RestartLog::new(Restarts::default(), workers)
}

#[test]
fn if_only_starts_count_workers_that_died_of_calls_are_replaced_at_once() {
    let policy = Restarts { counted: CountedFailures::BeforeFirstCall, ..Restarts::default() };
    let (mut log, now) = (RestartLog::new(policy, 1), Instant::now());
    for _ in 0..100 {
        log.failed(now, WorkerLife { was_used: true, ..SHORT }, EVEN());
        assert_eq!(log.next(now), NextStart::Now);
    }
    // Workers that had no call count as failures, as in any other pool.
    (0..6).for_each(|_| log.failed(now, SHORT, EVEN()));
    assert!(log.is_degraded());
    log.failed(now, WorkerLife { was_used: true, ..SHORT }, EVEN());
    assert!(log.is_degraded());
}

#[test]
fn a_single_failed_worker_is_replaced_at_once() {
    let (mut log, now) = (log(1), Instant::now());
    assert_eq!(log.next(now), NextStart::Now);
    log.failed(now, SHORT, EVEN());
    assert_eq!(log.next(now), NextStart::Now);
}

#[test]
fn the_pause_doubles_with_each_failure_of_a_series() {
    let (mut log, mut now) = (log(10), Instant::now());
    log.failed(now, SHORT, EVEN());
    let mut pauses = Vec::new();
    for _ in 0..8 {
        log.failed(now, SHORT, EVEN());
        let NextStart::At(at) = log.next(now) else { panic!("{log:?}") };
        pauses.push((at - now).as_millis());
        now = at;
        assert_eq!(log.next(now), NextStart::Now);
    }
    assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
    log.served();
    log.failed(now, SHORT, EVEN());
    assert_eq!(log.next(now), NextStart::Now, "a worker that served ended the series");
}

#[test]
fn workers_that_fail_together_count_as_one_failure_of_the_series() {
    let (mut log, now) = (log(20), Instant::now());
    (0..20).for_each(|_| log.failed(now, SHORT, EVEN()));
    assert_eq!(log.next(now), NextStart::At(now + millis(100)));
}

#[test]
fn workers_that_have_served_are_replaced_without_a_pause() {
    let (mut log, now) = (log(1), Instant::now());
    for count in 0..5 {
        log.failed(now + seconds(count), SERVED, EVEN());
        assert_eq!(log.next(now + seconds(count)), NextStart::Now);
    }
    log.failed(now + seconds(6), SERVED, EVEN());
    assert_eq!(log.next(now + seconds(6)), NextStart::Degraded { trial_at: now + seconds(11) });
}

#[test]
fn failures_fall_out_of_the_window() {
    let (mut log, mut now) = (log(1), Instant::now());
    for _ in 0..100 {
        log.failed(now, SERVED, EVEN());
        assert_eq!(log.next(now), NextStart::Now);
        now += millis(12_500);
    }
}

#[test]
fn a_healthy_pool_survives_the_loss_of_all_workers_twice_and_is_degraded_the_third_time() {
    let (mut log, mut now) = (log(20), Instant::now());
    for _ in 0..2 {
        (0..20).for_each(|_| log.failed(now, SERVED, EVEN()));
        assert_eq!(log.next(now), NextStart::Now);
        now += seconds(10);
    }
    (0..20).for_each(|_| log.failed(now, SERVED, EVEN()));
    let trial_at = now + seconds(5);
    assert_eq!(log.next(now), NextStart::Degraded { trial_at });
    log.started(trial_at, EVEN());
    log.served();
    assert_eq!(log.next(trial_at), NextStart::Now, "a worker that serves brings back the others");
}

#[test]
fn trial_workers_start_one_by_one_and_the_first_that_serves_restores_the_pool() {
    let (mut log, mut now) = (log(1), Instant::now());
    (0..6).for_each(|_| log.failed(now, SHORT, EVEN()));
    for _ in 0..3 {
        let NextStart::Degraded { trial_at } = log.next(now) else { panic!("{log:?}") };
        assert_eq!(trial_at, now + seconds(5));
        now = trial_at;
        log.started(now, EVEN());
        assert_eq!(log.next(now), NextStart::Degraded { trial_at: now + seconds(5) }, "one trial at a time");
        now += millis(300);
        log.failed(now, SHORT, EVEN());
    }
    log.started(now, EVEN());
    log.served();
    assert!(!log.is_degraded());
    assert_eq!(log.next(now), NextStart::Now);
    log.failed(now, SERVED, EVEN());
    assert!(log.is_degraded(), "the failures of the last minute still count");
}

#[test]
fn a_pool_without_trials_does_not_stay_degraded() {
    let (mut log, now) = (log(1), Instant::now());
    (0..6).for_each(|_| log.failed(now, SERVED, EVEN()));
    assert!(matches!(log.next(now + seconds(59)), NextStart::Degraded { .. }));
    assert_eq!(log.next(now + seconds(60)), NextStart::Now);
}

#[test]
fn a_smaller_pool_tolerates_fewer_failures() {
    let (mut log, now) = (log(20), Instant::now());
    (0..20).for_each(|_| log.failed(now, SERVED, EVEN()));
    log.resize(2);
    log.failed(now, SERVED, EVEN());
    assert!(log.is_degraded());
    assert_eq!(log.failures.len(), 6, "only the needed failures are kept");
}

/// A running worker in a storm.
struct Running {
    since: Instant,
    has_passed: bool,
}

/// Simulates ten minutes in which every worker fails `life` after its start, and answers either at once or never.
/// Returns the number of starts and of recoveries.
fn storm(workers: usize, life: Duration, answers: bool) -> (usize, usize) {
    let began = Instant::now();
    let (mut log, mut now, mut starts, mut recoveries) = (log(workers), began, 0, 0);
    let mut running: VecDeque<Running> = VecDeque::new();
    while now < began + seconds(600) {
        while running.front().is_some_and(|it| it.since + life <= now) {
            running.pop_front();
            log.failed(now, life_of(life, answers), Chance::draw());
        }
        for it in running.iter_mut().filter(|it| !it.has_passed) {
            if log.passes(life_of(now - it.since, answers && now > it.since)) {
                it.has_passed = true;
                recoveries += usize::from(log.is_degraded());
                log.served();
            }
        }
        while running.len() < workers {
            match log.next(now) {
                NextStart::Degraded { trial_at }
                    if trial_at <= now && running.iter().all(|it| it.has_passed) => {}
                NextStart::Now => {}
                NextStart::At(_) | NextStart::Degraded { .. } => break,
            }
            starts += 1;
            log.started(now, Chance::draw());
            running.push_back(Running { since: now, has_passed: false });
        }
        now += millis(10);
    }
    (starts, recoveries)
}

#[test]
fn a_crash_storm_starts_one_worker_per_longest_pause_however_long_workers_live() {
    // One trial every 5 s in 600 s, varied by a quarter and averaged, plus the worker's life and the initial budget.
    for (workers, life) in [(1, 1), (1, 300), (4, 50), (20, 1), (20, 300), (4, 1100), (4, 1500), (20, 3000)] {
        for answers in [false, true] {
            let (starts, recoveries) = storm(workers, millis(life), answers);
            let most = 5.max(2 * workers) + workers + 150;
            assert!((60..most).contains(&starts), "{workers} × {life} ms: {starts} starts");
            // Some workers answered before any worker had failed that did.
            assert!(recoveries <= 1, "{workers} × {life} ms: {recoveries} recoveries");
        }
    }
}

#[test]
fn a_trial_passes_by_outliving_the_failed_workers_or_by_answering_if_none_did() {
    let now = Instant::now();
    let life = |lived: u64, answered: bool| life_of(millis(lived), answered);
    let degraded_by = |failed: WorkerLife| {
        let mut log = log(1);
        assert!(log.passes(life(1000, false)) && log.passes(life(0, true)), "{log:?}");
        (0..6).for_each(|_| log.failed(now, failed, EVEN()));
        log
    };
    let silent = degraded_by(life(1300, false));
    assert!(!silent.passes(life(2599, false)) && silent.passes(life(2600, false)));
    assert!(silent.passes(life(0, true)), "none of them has answered");
    let talkative = degraded_by(life(1300, true));
    assert!(!talkative.passes(life(2599, true)) && talkative.passes(life(2600, true)));
    let old = degraded_by(life(60_000, true));
    assert!(old.passes(life(1000, false)) && old.passes(life(0, true)), "they were not young");
}

#[derive(Clone, Debug)]
enum Step {
    Pass(u64),
    Failed(bool, f64),
    Started(f64),
    Served,
    Resize(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..70_000u64).prop_map(Step::Pass),
        (0..300u64).prop_map(Step::Pass),
        (any::<bool>(), 0.0..1.0).prop_map(|(short, chance)| Step::Failed(short, chance)),
        (any::<bool>(), 0.0..1.0).prop_map(|(short, chance)| Step::Failed(short, chance)),
        (0.0..1.0).prop_map(Step::Started),
        Just(Step::Served),
        (0..30usize).prop_map(Step::Resize),
    ]
}

proptest! {
    #[test]
    fn the_next_start_is_never_far_away(
        steps in proptest::collection::vec(step(), 0..100),
    ) {
        let (mut log, mut now) = (log(4), Instant::now());
        for step in steps {
            match step {
                Step::Pass(time) => now += millis(time),
                Step::Failed(true, chance) => log.failed(now, SHORT, Chance::of(chance)),
                Step::Failed(false, chance) => log.failed(now, SERVED, Chance::of(chance)),
                Step::Started(chance) => log.started(now, Chance::of(chance)),
                Step::Served => log.served(),
                Step::Resize(workers) => log.resize(workers),
            }
            let next = log.next(now);
            prop_assert_eq!(log.next(now), next, "asking changes nothing");
            match next {
                NextStart::Now => {}
                NextStart::At(at) => {
                    prop_assert!(at > now && at <= now + millis(6250));
                    prop_assert_eq!(log.next(at), NextStart::Now);
                }
                NextStart::Degraded { trial_at } => prop_assert!(trial_at <= now + millis(6250)),
            }
            prop_assert!(log.failures.len() <= 61);
        }
        log.served();
        prop_assert_eq!(log.next(now), NextStart::Now, "a worker that serves restores any pool");
    }
}
