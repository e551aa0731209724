//! A simulated pool: calls arrive, wait and are served, workers take a while to start, and the sizer is asked
//! periodically.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::Dice;
use crate::sizing::{Observation, Sizer, Sizing};

/// The parameters of a simulation. Times are in seconds.
pub(crate) struct Scene {
    pub(crate) sizing: Sizing,
    /// The mean time of a call.
    pub(crate) service: f64,
    /// The time a worker takes to get ready.
    pub(crate) start_up: f64,
    /// The time between two questions to the sizer.
    pub(crate) tick: f64,
    pub(crate) length: f64,
    pub(crate) seed: u64,
}

/// The pool at one question to the sizer.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) at: f64,
    pub(crate) offered: f64,
    pub(crate) target: usize,
    pub(crate) serving: usize,
    pub(crate) busy: usize,
    pub(crate) queued: usize,
    /// The longest wait that ended since the previous question.
    pub(crate) wait: f64,
}

#[derive(Clone, Copy)]
struct Worker {
    ready_at: f64,
    /// The time at which its call ends. A time in the past means that the worker is free.
    busy_until: f64,
}

/// Runs the simulation. `rate` returns how many calls arrive per second at a given time.
pub(crate) fn simulate(scene: &Scene, rate: impl Fn(f64) -> f64) -> Vec<Moment> {
    let mut pool = Pool {
        dice: Dice::new(scene.seed),
        workers: vec![Worker { ready_at: 0.0, busy_until: 0.0 }; scene.sizing.min_workers],
        queue: VecDeque::new(),
        finished: 0,
        wait: 0.0,
    };
    let mut sizer = Sizer::new(scene.sizing);
    let start = Instant::now();
    let (mut at, mut asked_at, mut arrived) = (0.0, 0.0, 0);
    // Arrivals are drawn at the highest rate and then thinned out, so that they follow a changing rate exactly.
    let highest = (0..=1000).map(|i| rate(scene.length * f64::from(i) / 1000.0)).fold(1.0, f64::max);
    let mut arrival = pool.dice.exponential(1.0 / highest);
    let mut moments = Vec::new();
    while at < scene.length {
        let end = pool.next_end(at);
        at = arrival.min(asked_at).min(end);
        pool.settle(at, scene.service);
        if at >= arrival {
            if pool.dice.unit() * highest < rate(at) {
                arrived += 1;
                pool.queue.push_back(at);
            }
            arrival = at + pool.dice.exponential(1.0 / highest);
        } else if at >= asked_at {
            let seen = pool.observe(at, arrived, scene.sizing.idle_ttl);
            let target = sizer.decide(&seen, start + Duration::from_secs_f64(at));
            pool.resize(target, at, scene.start_up);
            let (serving, busy, queued) = (seen.serving, seen.busy, seen.queued);
            let wait = std::mem::take(&mut pool.wait).max(seen.head_waits.as_secs_f64());
            moments.push(Moment {
                at,
                offered: rate(at) * scene.service,
                target,
                serving,
                busy,
                queued,
                wait,
            });
            asked_at = at + scene.tick;
        }
        pool.settle(at, scene.service);
    }
    moments
}

struct Pool {
    dice: Dice,
    workers: Vec<Worker>,
    queue: VecDeque<f64>,
    finished: u64,
    wait: f64,
}

impl Pool {
    /// Returns the next time at which a worker becomes ready or free.
    fn next_end(&self, at: f64) -> f64 {
        let ends = self.workers.iter().flat_map(|worker| [worker.ready_at, worker.busy_until]);
        ends.filter(|end| *end > at).fold(f64::INFINITY, f64::min)
    }

    /// Gives queued calls to free workers. The worker that was busy last comes first, as in the scheduler.
    fn settle(&mut self, at: f64, service: f64) {
        while let Some(since) = self.queue.front().copied() {
            let free = self.workers.iter_mut().filter(|it| it.ready_at <= at && it.busy_until <= at);
            let Some(worker) = free.max_by(|a, b| a.busy_until.total_cmp(&b.busy_until)) else { return };
            // Half of the time is fixed, half is random.
            worker.busy_until = at + service / 2.0 + self.dice.exponential(service / 2.0);
            self.wait = self.wait.max(at - since);
            self.queue.pop_front();
            // Counted at the call's start, so early by less than a call.
            self.finished += 1;
        }
    }

    fn observe(&self, at: f64, arrived: u64, idle_ttl: Duration) -> Observation {
        let serving = self.workers.iter().filter(|it| it.ready_at <= at);
        let busy = serving.clone().filter(|it| it.busy_until > at).count();
        let idle_since = |it: &Worker| at - it.busy_until.max(it.ready_at);
        let long = serving.clone().filter(|it| idle_since(it) >= idle_ttl.as_secs_f64()).count();
        Observation {
            queued: self.queue.len(),
            head_waits: Duration::from_secs_f64(self.queue.front().map_or(0.0, |since| at - since)),
            serving: serving.clone().count(),
            starting: self.workers.len() - serving.count(),
            busy,
            long_idle: long,
            arrived,
            finished: self.finished - busy as u64,
        }
    }

    fn resize(&mut self, target: usize, at: f64, start_up: f64) {
        while self.workers.len() < target {
            self.workers.push(Worker { ready_at: at + start_up, busy_until: 0.0 });
        }
        while self.workers.len() > target {
            let idle =
                self.workers.iter().enumerate().filter(|(_, it)| it.ready_at <= at && it.busy_until <= at);
            let longest =
                idle.min_by(|a, b| a.1.busy_until.total_cmp(&b.1.busy_until)).map(|(index, _)| index);
            let Some(index) = longest else { return };
            self.workers.swap_remove(index);
        }
    }
}

/// Returns how often the size changed direction.
pub(crate) fn direction_changes(moments: &[Moment]) -> usize {
    let steps = moments.windows(2).map(|pair| pair[1].target.cmp(&pair[0].target));
    let moves: Vec<_> = steps.filter(|step| step.is_ne()).collect();
    moves.windows(2).filter(|pair| pair[0] != pair[1]).count()
}

/// Returns the trace as a table with one line per `every` seconds.
pub(crate) fn table(name: &str, moments: &[Moment], every: f64) -> String {
    let mut lines =
        vec![name.to_owned(), "    time  load  target  serving  busy  queued  worst wait".to_owned()];
    let mut next = 0.0;
    let mut wait: f64 = 0.0;
    for moment in moments {
        wait = wait.max(moment.wait);
        if moment.at >= next {
            let Moment { at, offered, target, serving, busy, queued, .. } = moment;
            let waited = wait * 1e3;
            lines.push(format!(
                "{at:7.1}s {offered:5.1} {target:7} {serving:8} {busy:5} {queued:7} {waited:8.0} ms"
            ));
            next = at + every;
            wait = 0.0;
        }
    }
    lines.join("\n")
}
