//! The keys about how a pool looks after itself.

use std::num::NonZeroUsize;

use serde::Deserialize;

use super::tables::PoolKeys;
use super::units::Time;
use crate::{Breaker, Pool, Quarantine, Recycling, Restarts, Retry, Sizing, Stuck, Taint, WhenStuck};

/// Gives a setting to what is built, if it is said.
pub(super) fn set<B, T>(built: B, value: Option<T>, setter: impl FnOnce(B, T) -> B) -> B {
    match value {
        Some(value) => setter(built, value),
        None => built,
    }
}

fn time(time: Option<Time>) -> Option<std::time::Duration> {
    time.map(|Time(time)| time)
}

/// A call that warms a worker up.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WarmUpKeys {
    command: String,
    #[serde(default)]
    args: toml::Table,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RestartKeys {
    failures: Option<usize>,
    within: Option<Time>,
    first_pause: Option<Time>,
    longest_pause: Option<Time>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RetryKeys {
    attempts: Option<u32>,
    first_pause: Option<Time>,
    longest_pause: Option<Time>,
    ratio: Option<f64>,
    reserve: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct QuarantineKeys {
    enabled: Option<bool>,
    deaths: Option<usize>,
    within: Option<Time>,
    lasts: Option<Time>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BreakerKeys {
    failures: Option<u32>,
    ratio: Option<f64>,
    window: Option<Time>,
    open_for: Option<Time>,
    longest: Option<Time>,
    trials: Option<u32>,
    errors: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TaintKeys {
    lasts: Option<Time>,
    #[serde(default)]
    patterns: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StuckKeys {
    after: Option<Time>,
    then: Option<ThenName>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ThenName {
    Report,
    Replace,
}

impl PoolKeys {
    /// Sets what is said about supervision.
    pub(super) fn supervise(self, pool: Pool) -> Pool {
        let sizing = self.max_workers.map(|most| {
            let sizing = Sizing::between(self.min_workers.unwrap_or(1).min(most), most);
            let sizing = set(sizing, time(self.grow_after), Sizing::grow_after);
            set(sizing, time(self.idle_ttl), Sizing::idle_ttl)
        });
        let recycling = set(Recycling::default(), self.max_requests, Recycling::max_requests);
        let recycling = set(recycling, time(self.ttl), Recycling::ttl);
        // Where the size follows the load, who idles is not replaced but sent away.
        let idle_ttl = self.idle_ttl.filter(|_| sizing.is_none());
        let recycling = set(recycling, time(idle_ttl), Recycling::idle_ttl);
        let recycling = set(recycling, self.max_rss.map(|it| it.0 as u64), Recycling::max_rss);
        let recycling = set(recycling, self.recycle_jitter, Recycling::jitter);
        let pool = set(pool.recycling(recycling), sizing, Pool::sizing);
        let pool = set(pool, self.adaptive_concurrency, |pool, (fewest, most)| {
            pool.adaptive_concurrency(fewest..=most)
        });
        let pool = set(pool, self.replace_at_once.map(NonZeroUsize::get), Pool::replace_at_once);
        let pool = set(pool, self.lazy, Pool::lazy);
        let pool = set(pool, self.debug, Pool::debug);
        let pool = set(pool, self.devices, Pool::devices);
        let pool = self.warm_up.into_iter().fold(pool, |pool, it| pool.warm_up(it.command, it.args));
        let pool = set(pool, self.restarts.map(RestartKeys::policy), Pool::restarts);
        let pool = set(pool, self.retry.map(RetryKeys::policy), Pool::retry);
        let pool = set(pool, self.quarantine.map(QuarantineKeys::policy), Pool::quarantine);
        let pool = set(pool, self.breaker.map(BreakerKeys::policy), Pool::breaker);
        let pool = set(pool, self.taint.map(TaintKeys::policy), Pool::taint);
        set(pool, self.stuck.map(StuckKeys::policy), Pool::stuck)
    }
}

impl RestartKeys {
    fn policy(self) -> Restarts {
        let policy = set(Restarts::default(), self.failures, Restarts::failures);
        let policy = set(policy, time(self.within), Restarts::within);
        let policy = set(policy, time(self.first_pause), Restarts::first_pause);
        set(policy, time(self.longest_pause), Restarts::longest_pause)
    }
}

impl RetryKeys {
    fn policy(self) -> Retry {
        let policy = set(Retry::default(), self.attempts, Retry::attempts);
        let policy = set(policy, time(self.first_pause), Retry::first_pause);
        let policy = set(policy, time(self.longest_pause), Retry::longest_pause);
        let policy = set(policy, self.ratio, Retry::ratio);
        set(policy, self.reserve, Retry::reserve)
    }
}

impl QuarantineKeys {
    fn policy(self) -> Option<Quarantine> {
        let policy = set(Quarantine::default(), self.deaths, Quarantine::deaths);
        let policy = set(policy, time(self.within), Quarantine::within);
        let policy = set(policy, time(self.lasts), Quarantine::lasts);
        self.enabled.unwrap_or(true).then_some(policy)
    }
}

impl BreakerKeys {
    fn policy(self) -> Breaker {
        let policy = set(Breaker::default(), self.failures, Breaker::failures);
        let policy = set(policy, self.ratio, Breaker::ratio);
        let policy = set(policy, time(self.window), Breaker::window);
        let policy = set(policy, time(self.open_for), Breaker::open_for);
        let policy = set(policy, time(self.longest), Breaker::longest);
        let policy = set(policy, self.trials, Breaker::trials);
        set(policy, self.errors, Breaker::errors)
    }
}

impl TaintKeys {
    fn policy(self) -> Taint {
        let policy = set(Taint::default(), time(self.lasts), Taint::lasts);
        self.patterns.into_iter().fold(policy, Taint::pattern)
    }
}

impl StuckKeys {
    fn policy(self) -> Stuck {
        let policy = set(Stuck::default(), time(self.after), Stuck::after);
        set(policy, self.then, |policy, then| {
            policy.then(match then {
                ThenName::Report => WhenStuck::Report,
                ThenName::Replace => WhenStuck::Replace,
            })
        })
    }
}
