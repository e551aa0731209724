//! The size of a pool under a step, a ramp, noise and no load. `--nocapture` shows the traces.

use super::queueing::{Moment, Scene, direction_changes, simulate, table};
use crate::sizing::Sizing;

/// Returns a scene with calls of 20 ms and workers that start in 150 ms. The sizer is asked every 50 ms.
fn scene(length: f64, seed: u64) -> Scene {
    Scene { sizing: Sizing::between(2, 64), service: 0.02, start_up: 0.15, tick: 0.05, length, seed }
}

fn worst_wait(moments: &[Moment]) -> f64 {
    moments.iter().map(|moment| moment.wait).fold(0.0, f64::max)
}

fn largest(moments: &[Moment]) -> usize {
    moments.iter().map(|moment| moment.target).max().unwrap_or(0)
}

fn between(moments: &[Moment], from: f64, to: f64) -> &[Moment] {
    let first = moments.partition_point(|moment| moment.at < from);
    let last = moments.partition_point(|moment| moment.at < to);
    &moments[first..last]
}

#[test]
fn a_tenfold_step_of_load_is_met_within_a_second_and_reversed_after_it() {
    for seed in 1..=2 {
        // Work for 1.6 workers, then for 16, then for 1.6 again, then none at all.
        let rate = |at: f64| match at {
            at if at < 10.0 => 80.0,
            at if at < 70.0 => 800.0,
            at if at < 400.0 => 80.0,
            _ => 0.0,
        };
        let moments = simulate(&scene(700.0, seed), rate);
        if seed == 1 {
            println!("{}", table("step, closely", between(&moments, 9.9, 12.0), 0.1));
            println!("{}", table("step", &moments, 20.0));
        }
        let met =
            moments.iter().find(|it| it.at > 10.0 && it.serving >= 16).expect("the size that is needed").at;
        assert!(met < 11.0, "seed {seed}: met only at {met:.2} s");
        assert!(worst_wait(&moments) < 1.0, "seed {seed}: {:.3} s in the queue", worst_wait(&moments));
        assert!(worst_wait(between(&moments, 12.0, 70.0)) < 0.2, "seed {seed}: calls still wait");
        assert!(largest(&moments) <= 32, "seed {seed}: {} workers for the work of 16", largest(&moments));
        assert!(direction_changes(&moments) <= 3, "seed {seed}: {} turns", direction_changes(&moments));
        assert_eq!(moments.last().map(|it| it.target), Some(2), "seed {seed}: back to the fewest");
    }
}

#[test]
fn the_size_follows_a_ramp_of_load_with_one_change_of_direction() {
    for seed in 1..=2 {
        // From no work to work for 24 workers within two minutes, and back.
        let rate = |at: f64| 1200.0 * (1.0 - (at - 120.0).abs() / 120.0).max(0.0);
        let moments = simulate(&scene(600.0, seed), rate);
        if seed == 1 {
            println!("{}", table("ramp", &moments, 20.0));
        }
        assert!(worst_wait(&moments) < 0.3, "seed {seed}: {:.3} s in the queue", worst_wait(&moments));
        assert!((24..=40).contains(&largest(&moments)), "seed {seed}: {}", largest(&moments));
        assert!(direction_changes(&moments) <= 1, "seed {seed}: {} turns", direction_changes(&moments));
        assert_eq!(moments.last().map(|it| it.target), Some(2), "seed {seed}");
    }
}

#[test]
fn noisy_load_neither_grows_the_pool_forever_nor_makes_it_flap() {
    for seed in 1..=2 {
        // Work for 8 workers on average, varying between 5.6 and 10.4 every 2 s.
        let rate = |at: f64| 400.0 * (1.0 + 0.3 * ((at / 2.0).floor() * 12.9898).sin());
        let moments = simulate(&scene(900.0, seed), rate);
        if seed == 1 {
            println!("{}", table("noise", &moments, 60.0));
        }
        let settled = between(&moments, 120.0, 900.0);
        assert!(direction_changes(settled) <= 4, "seed {seed}: {} turns", direction_changes(settled));
        let sizes = settled.iter().map(|it| it.target);
        let (low, high) = (sizes.clone().min().unwrap_or(0), sizes.max().unwrap_or(0));
        assert!(low >= 10 && high <= 24, "seed {seed}: between {low} and {high}");
        assert!(worst_wait(settled) < 0.2, "seed {seed}: {:.3} s in the queue", worst_wait(settled));
    }
}

#[test]
fn long_calls_get_a_worker_each_before_any_of_them_has_ended() {
    let scene = Scene { service: 20.0, ..scene(20.0, 1) };
    let moments = simulate(&scene, |at| if at < 1.0 { 40.0 } else { 0.0 });
    println!("{}", table("calls of 20 s", between(&moments, 0.0, 3.0), 0.1));
    assert!(worst_wait(&moments) < 0.5, "{:.3} s in the queue", worst_wait(&moments));
}
