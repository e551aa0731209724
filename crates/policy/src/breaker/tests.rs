//! What a circuit does, row by row of its table and for arbitrary sequences of events.

use proptest::prelude::*;

use super::*;

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn circuit(policy: Breaker) -> (Circuit, Instant) {
    let now = Instant::now();
    (Circuit::new(policy, now), now)
}

fn fail(circuit: &Circuit, count: usize, now: Instant) {
    for _ in 0..count {
        let permit = circuit.admit(now).expect("closed");
        circuit.failed(permit, now);
    }
}

fn succeed(circuit: &Circuit, count: usize, now: Instant) {
    for _ in 0..count {
        let permit = circuit.admit(now).expect("closed");
        circuit.succeeded(permit, now);
    }
}

fn phase(circuit: &Circuit, now: Instant) -> CircuitPhase {
    circuit.snapshot(now).state
}

#[test]
fn too_many_failures_open_the_circuit_for_its_configured_time() {
    let (circuit, now) = circuit(Breaker::default());
    fail(&circuit, 9, now);
    assert_eq!(phase(&circuit, now), CircuitPhase::Closed);
    fail(&circuit, 1, now);
    assert_eq!(
        circuit.snapshot(now),
        CircuitState {
            state: CircuitPhase::Open,
            calls: 10,
            failures: 10,
            since: now,
            until: Some(now + seconds(5)),
            trips: 1
        }
    );
    assert_eq!(circuit.admit(now + seconds(4)).expect_err("open"), OpenUntil(now + seconds(5)));
}

#[test]
fn a_few_failures_among_many_calls_do_not_open_the_circuit() {
    let (circuit, now) = circuit(Breaker::default());
    succeed(&circuit, 100, now);
    fail(&circuit, 99, now);
    assert_eq!(phase(&circuit, now), CircuitPhase::Closed);
    fail(&circuit, 1, now);
    assert_eq!(phase(&circuit, now), CircuitPhase::Open, "half of them");
}

#[test]
fn failures_outside_the_window_do_not_count() {
    let (circuit, mut now) = circuit(Breaker::default());
    for _ in 0..20 {
        fail(&circuit, 4, now);
        now += seconds(5);
        assert_eq!(phase(&circuit, now), CircuitPhase::Closed);
    }
    assert_eq!(circuit.snapshot(now).failures, 4);
    assert_eq!(circuit.snapshot(now + seconds(5)).failures, 0);
}

#[test]
fn a_successful_trial_closes_the_circuit_and_resets_its_counts() {
    let (circuit, now) = circuit(Breaker::default());
    fail(&circuit, 10, now);
    let then = now + seconds(5);
    let trial = circuit.admit(then).expect("a trial");
    assert_eq!(phase(&circuit, then), CircuitPhase::HalfOpen);
    assert_eq!(circuit.admit(then).expect_err("one at a time"), OpenUntil(then + seconds(5)));
    circuit.succeeded(trial, then);
    let closed = circuit.snapshot(then);
    assert_eq!(
        (closed.state, closed.failures, closed.since, closed.trips),
        (CircuitPhase::Closed, 0, then, 1)
    );
    fail(&circuit, 9, then);
    assert_eq!(phase(&circuit, then), CircuitPhase::Closed);
}

#[test]
fn each_failed_trial_doubles_the_open_time_up_to_the_limit() {
    let (circuit, mut now) = circuit(Breaker::default());
    fail(&circuit, 10, now);
    let mut times = Vec::new();
    for _ in 0..6 {
        let until = circuit.snapshot(now).until.expect("open");
        times.push((until - now).as_secs());
        now = until;
        let trial = circuit.admit(now).expect("a trial");
        circuit.failed(trial, now);
    }
    assert_eq!(times, [5, 10, 20, 40, 60, 60]);
    assert_eq!(circuit.snapshot(now).trips, 7);
}

#[test]
fn a_cancelled_trial_frees_its_place() {
    let (circuit, now) = circuit(Breaker::default());
    fail(&circuit, 10, now);
    let now = now + seconds(5);
    for _ in 0..10 {
        let trial = circuit.admit(now).expect("a place");
        circuit.cancelled(trial, now);
    }
    let trial = circuit.admit(now).expect("a place");
    circuit.succeeded(trial, now);
    assert_eq!(phase(&circuit, now), CircuitPhase::Closed);
}

#[test]
fn a_trial_without_a_result_blocks_the_next_one_only_for_the_open_time() {
    let (circuit, now) = circuit(Breaker::default());
    fail(&circuit, 10, now);
    let now = now + seconds(5);
    let slow = circuit.admit(now).expect("a trial");
    assert!(circuit.admit(now + seconds(4)).is_err());
    let lost = circuit.admit(now + seconds(5)).expect("the next one");
    assert!(circuit.admit(now + seconds(6)).is_err());
    circuit.succeeded(slow, now + seconds(7));
    assert_eq!(phase(&circuit, now), CircuitPhase::Closed, "late, but it succeeded");
    // The other trial belongs to a period that is over.
    circuit.failed(lost, now + seconds(8));
    let closed = circuit.snapshot(now + seconds(8));
    assert_eq!((closed.state, closed.calls), (CircuitPhase::Closed, 0));
}

#[test]
fn all_trials_must_succeed() {
    let (circuit, now) = circuit(Breaker::default().trials(3));
    fail(&circuit, 10, now);
    let now = now + seconds(5);
    let trials: Vec<_> = (0..3).map(|_| circuit.admit(now).expect("a place")).collect();
    assert!(circuit.admit(now).is_err());
    let mut trials = trials.into_iter();
    for trial in trials.by_ref().take(2) {
        circuit.succeeded(trial, now);
        assert!(circuit.admit(now).is_err(), "a trial that passed keeps its place");
    }
    circuit.failed(trials.next().expect("the third"), now);
    assert_eq!(phase(&circuit, now), CircuitPhase::Open);
}

#[test]
fn results_of_calls_admitted_before_the_circuit_opened_are_ignored() {
    let (circuit, now) = circuit(Breaker::default());
    let old: Vec<_> = (0..30).map(|_| circuit.admit(now).expect("closed")).collect();
    fail(&circuit, 10, now);
    let now = now + seconds(5);
    let trial = circuit.admit(now).expect("a trial");
    let mut old = old.into_iter();
    old.by_ref().take(15).for_each(|permit| assert!(circuit.failed(permit, now).is_none()));
    assert_eq!(phase(&circuit, now), CircuitPhase::HalfOpen);
    circuit.succeeded(trial, now);
    old.for_each(|permit| assert!(circuit.failed(permit, now).is_none()));
    assert_eq!((phase(&circuit, now), circuit.snapshot(now).calls), (CircuitPhase::Closed, 0));
}

#[test]
fn extreme_durations_do_not_panic() {
    for time in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
        let policy =
            Breaker::default().window(time).open_for(time).longest(Duration::MAX).failures(0).trials(0);
        let (circuit, now) = circuit(policy);
        fail(&circuit, 1, now);
        for _ in 0..70 {
            if let Ok(trial) = circuit.admit(now) {
                circuit.failed(trial, now);
            }
        }
        assert_ne!(phase(&circuit, now), CircuitPhase::Closed);
    }
}

#[test]
fn concurrent_threads_lose_no_counts() {
    let (circuit, now) = circuit(Breaker::default().failures(u32::MAX));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                (0..500).for_each(|_| {
                    succeed(&circuit, 1, now);
                    fail(&circuit, 1, now);
                });
            });
        }
    });
    let seen = circuit.snapshot(now);
    assert_eq!((seen.calls, seen.failures), (4000, 2000));
}

#[derive(Clone, Debug)]
enum Step {
    Pass(u64),
    Ask,
    End(prop::sample::Index, u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (0..8_000u64).prop_map(Step::Pass),
        3 => Just(Step::Ask),
        // The fourth way to end is to never be reported.
        3 => (any::<prop::sample::Index>(), 0..4u8).prop_map(|(which, how)| Step::End(which, how)),
    ]
}

proptest! {
    #[test]
    fn a_circuit_always_admits_a_trial_within_its_longest_open_time(steps in prop::collection::vec(step(), 0..150), trials in 1..4u32) {
        let (circuit, mut now) = circuit(Breaker::default().failures(2).trials(trials));
        let mut out = Vec::new();
        for step in steps {
            match step {
                Step::Pass(millis) => now += Duration::from_millis(millis),
                Step::Ask => match circuit.admit(now) {
                    Ok(permit) => out.push(permit),
                    Err(OpenUntil(until)) => {
                        prop_assert!(until > now && until <= now + seconds(60));
                    }
                },
                Step::End(which, how) if !out.is_empty() => {
                    let permit = out.swap_remove(which.index(out.len()));
                    match how {
                        0 => assert_ne!(circuit.succeeded(permit, now), Some(CircuitPhase::HalfOpen)),
                        1 => assert!(circuit.failed(permit, now).is_none_or(|it| it == CircuitPhase::Open)),
                        2 => circuit.cancelled(permit, now),
                        _ => drop(permit),
                    }
                }
                Step::End(..) => {}
            }
            let seen = circuit.snapshot(now);
            prop_assert_eq!(seen.state == CircuitPhase::Closed, seen.until.is_none());
            prop_assert!(seen.failures <= seen.calls && seen.since <= now);
        }
        // Whichever calls are still unreported, a pool that works again is used again.
        for _ in 0..trials {
            let permit = match circuit.admit(now) {
                Ok(permit) => permit,
                Err(OpenUntil(until)) => {
                    now = until;
                    circuit.admit(now).expect("the open time is over")
                }
            };
            circuit.succeeded(permit, now);
        }
        prop_assert_eq!(phase(&circuit, now), CircuitPhase::Closed);
    }
}

#[test]
fn new_settings_apply_at_once_and_may_shorten_the_open_time() {
    let (circuit, now) = circuit(Breaker::default());
    fail(&circuit, 5, now);
    circuit.adopt(Breaker::default().failures(6), now);
    assert_eq!(circuit.snapshot(now).failures, 5, "the counts are kept");
    fail(&circuit, 1, now);
    assert_eq!(phase(&circuit, now), CircuitPhase::Open);
    circuit.adopt(Breaker::default().longest(seconds(60)), now);
    assert_eq!(circuit.snapshot(now).until, Some(now + seconds(5)));
    circuit.adopt(Breaker::default().longest(seconds(2)), now);
    assert_eq!(circuit.snapshot(now).until, Some(now + seconds(2)));
    let permit = circuit.admit(now + seconds(2)).expect("a trial");
    assert_eq!(circuit.failed(permit, now + seconds(2)), Some(CircuitPhase::Open));
    assert_eq!(circuit.snapshot(now).until, Some(now + seconds(4)), "at most the longest time");
}

#[test]
fn a_window_of_another_length_starts_empty() {
    let (circuit, now) = circuit(Breaker::default());
    fail(&circuit, 9, now);
    circuit.adopt(Breaker::default().window(seconds(60)), now);
    assert_eq!(circuit.snapshot(now).calls, 0);
    fail(&circuit, 9, now + seconds(25));
    fail(&circuit, 1, now + seconds(50));
    assert_eq!(phase(&circuit, now + seconds(50)), CircuitPhase::Open, "it sees further back");
}

#[test]
fn a_reset_circuit_is_closed_and_ignores_results_of_earlier_calls() {
    let (circuit, now) = circuit(Breaker::default().failures(1));
    let before = circuit.admit(now).expect("closed");
    fail(&circuit, 1, now);
    circuit.forget(now);
    let state = circuit.snapshot(now);
    assert_eq!((state.state, state.calls, state.trips), (CircuitPhase::Closed, 0, 0));
    assert_eq!(circuit.failed(before, now), None);
    assert_eq!(circuit.snapshot(now).calls, 0);
}
