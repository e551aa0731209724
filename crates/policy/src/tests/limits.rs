//! The limit of a worker's calls, run against simulated workers. `--nocapture` shows the traces.

use std::time::Duration;

use tokio::time::Instant;

use super::Dice;
use crate::limit::{AdaptiveLimit, LatencyOutcome};

/// A worker at one moment: how long a call takes alone, and how many calls it can do at once without slowing down.
#[derive(Clone, Copy)]
struct Model {
    alone: f64,
    parallel: f64,
    /// How much the calls vary: 0 is not at all, 1 is an exponential distribution.
    noise: f64,
}

struct Flight {
    began: f64,
    work_left: f64,
    beside: usize,
}

/// Keeps as many calls in flight as the limit allows. Returns the limit after each tenth of a second.
fn run(
    limit: &mut AdaptiveLimit,
    seconds: f64,
    seed: u64,
    model: impl Fn(f64) -> Model,
) -> Vec<(f64, usize)> {
    let start = Instant::now();
    let mut dice = Dice::new(seed);
    let mut flights: Vec<Flight> = Vec::new();
    let (mut at, mut trace) = (0.0, Vec::new());
    while at < seconds {
        let Model { alone, parallel, noise } = model(at);
        while flights.len() < limit.limit() {
            let work = alone * (1.0 - noise) + dice.exponential(alone * noise);
            flights.push(Flight { began: at, work_left: work, beside: flights.len() + 1 });
        }
        // All calls share the capacity of the worker.
        let pace = (parallel / flights.len() as f64).min(1.0);
        let least = |a: &(usize, &Flight), b: &(usize, &Flight)| a.1.work_left.total_cmp(&b.1.work_left);
        let Some((first, _)) = flights.iter().enumerate().min_by(least) else { break };
        let done = flights.swap_remove(first);
        at += done.work_left / pace;
        for flight in &mut flights {
            flight.work_left -= done.work_left;
        }
        let latency = Duration::from_secs_f64(at - done.began);
        let beside = done.beside.max(flights.len() + 1);
        limit.sample(latency, beside, LatencyOutcome::Answered, start + Duration::from_secs_f64(at));
        if trace.last().is_none_or(|(then, _)| at - then >= 0.1) {
            trace.push((at, limit.limit()));
        }
    }
    trace
}

fn show(name: &str, trace: &[(f64, usize)]) {
    let step = (trace.len() / 40).max(1);
    let limits: Vec<String> = trace.iter().step_by(step).map(|(_, limit)| limit.to_string()).collect();
    println!("{name:44} {}", limits.join(" "));
}

/// Returns the share of the time from `from` to `to` in which the limit was within the bounds. Probes are outside.
fn share_within(trace: &[(f64, usize)], from: f64, to: f64, bounds: std::ops::RangeInclusive<usize>) -> f64 {
    let seen: Vec<usize> = trace.iter().filter(|(at, _)| (from..to).contains(at)).map(|it| it.1).collect();
    seen.iter().filter(|limit| bounds.contains(limit)).count() as f64 / seen.len().max(1) as f64
}

#[test]
fn the_limit_settles_near_the_parallelism_of_the_worker() {
    for (parallel, bounds) in [(1, 1..=3), (4, 4..=7), (8, 8..=11), (16, 16..=21), (40, 40..=50)] {
        for seed in 1..=2 {
            let mut limit = AdaptiveLimit::new(1, 64);
            let model = Model { alone: 0.01, parallel: f64::from(parallel), noise: 0.0 };
            let trace = run(&mut limit, 60.0, seed, |_| model);
            if seed == 1 {
                show(&format!("{parallel} at once"), &trace);
            }
            let share = share_within(&trace, 10.0, 60.0, bounds.clone());
            assert!(
                share > 0.95,
                "{parallel} at once, seed {seed}: {:.0} % within {bounds:?}",
                share * 100.0
            );
        }
    }
}

#[test]
fn noise_does_not_move_the_limit_far() {
    for (parallel, bounds) in [(4, 3..=9), (16, 13..=24)] {
        for seed in 1..=2 {
            let mut limit = AdaptiveLimit::new(1, 64);
            let model = Model { alone: 0.01, parallel: f64::from(parallel), noise: 0.8 };
            let trace = run(&mut limit, 120.0, seed, |_| model);
            if seed == 1 {
                show(&format!("{parallel} at once, noisy"), &trace);
            }
            let share = share_within(&trace, 10.0, 120.0, bounds.clone());
            assert!(share > 0.9, "{parallel} at once, seed {seed}: {:.0} % within {bounds:?}", share * 100.0);
        }
    }
}

#[test]
fn a_worker_that_only_waits_gets_the_highest_limit() {
    for seed in 1..=2 {
        let mut limit = AdaptiveLimit::new(1, 64);
        let model = Model { alone: 0.05, parallel: f64::INFINITY, noise: 0.8 };
        let trace = run(&mut limit, 60.0, seed, |_| model);
        if seed == 1 {
            show("waits only, noisy", &trace);
        }
        assert!(share_within(&trace, 30.0, 60.0, 55..=64) > 0.9, "seed {seed}");
    }
}

#[test]
fn the_limit_follows_changes_in_the_parallelism_of_the_worker() {
    for seed in 1..=2 {
        let mut limit = AdaptiveLimit::new(1, 64);
        let parallel = |at| if (60.0..120.0).contains(&at) { 4.0 } else { 16.0 };
        let trace =
            run(&mut limit, 180.0, seed, |at| Model { alone: 0.01, parallel: parallel(at), noise: 0.3 });
        if seed == 1 {
            show("16, then 4, then 16 at once", &trace);
        }
        assert!(share_within(&trace, 30.0, 60.0, 15..=23) > 0.9, "seed {seed}: before");
        assert!(share_within(&trace, 90.0, 120.0, 3..=8) > 0.9, "seed {seed}: less");
        assert!(share_within(&trace, 150.0, 180.0, 15..=23) > 0.9, "seed {seed}: more");
    }
}

#[test]
fn slower_calls_alone_do_not_lower_the_limit() {
    for seed in 1..=2 {
        let mut limit = AdaptiveLimit::new(1, 64);
        let alone = |at| if at < 60.0 { 0.01 } else { 0.03 };
        let trace = run(&mut limit, 150.0, seed, |at| Model { alone: alone(at), parallel: 16.0, noise: 0.3 });
        if seed == 1 {
            show("three times as slow from the middle on", &trace);
        }
        assert!(share_within(&trace, 100.0, 150.0, 15..=23) > 0.9, "seed {seed}");
    }
}
