//! What a crew looks at though nothing has happened: how worn its workers are, what they hold, and how many are needed.
//!
//! A look at a worker is cheap and is made once a second; memory is read only where it is limited. How many are needed is
//! asked often, but only while calls wait or workers start.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::roster::{Due, Member, News, Roster};
use crate::pool::PoolEvent;
use crate::supervision::growth::Gauge;
use crate::supervision::recycling::Wear;
use crate::supervision::sizing::Observation;
use crate::worker::{Berth, Pss, Vitals};

/// How often workers are looked at.
const ROUND: Duration = Duration::from_secs(1);
/// How often the size is thought about while it may be wrong.
const SIZING: Duration = Duration::from_millis(25);

/// What a look at a worker's processes has shown.
pub(super) struct Seen {
    berth: Arc<Berth>,
    memory: Option<u64>,
}

/// What is remembered of a worker between two looks.
#[derive(Default)]
pub(super) struct Notes {
    calls: u64,
    idle_since: Option<Instant>,
    memory: Option<u64>,
    gauge: Gauge,
}

impl Member {
    /// How long it has had nothing to do; none while it has.
    pub(super) fn idle_for(&self, now: Instant) -> Option<Duration> {
        self.notes.idle_since.map(|since| now.saturating_duration_since(since))
    }

    fn look(&mut self, now: Instant) {
        let calls = self.berth.calls_given();
        if self.berth.holds_calls() {
            self.notes.idle_since = None;
        } else if calls != self.notes.calls || self.notes.idle_since.is_none() {
            self.notes.idle_since = Some(now);
        }
        self.notes.calls = calls;
    }

    fn wear(&self, now: Instant) -> Wear {
        Wear {
            calls: self.berth.calls_given(),
            age: now.saturating_duration_since(self.berth.ready_at),
            idle_for: self.idle_for(now),
            memory: self.notes.memory,
        }
    }
}

impl Roster {
    /// When the next look is due.
    pub(super) fn next_round(&self) -> Option<Instant> {
        let sizing = (self.sizer.is_some() && self.size_may_be_wrong()).then_some(self.sized_at + SIZING);
        let round = (!self.serving.is_empty()).then_some(self.looked_at + ROUND);
        sizing.into_iter().chain(round).min()
    }

    fn size_may_be_wrong(&self) -> bool {
        !self.starting.is_empty() || self.shared.scheduler().depth() > 0
    }

    pub(super) fn make_rounds(&mut self) {
        let now = Instant::now();
        if now >= self.looked_at + ROUND {
            self.looked_at = now;
            self.serving.values_mut().for_each(|member| member.look(now));
            self.read_memory();
            self.think_about_size(now);
        } else if now >= self.sized_at + SIZING && self.size_may_be_wrong() {
            self.think_about_size(now);
        }
        self.find_worn(now);
    }

    /// Marks those that have served long enough.
    fn find_worn(&mut self, now: Instant) {
        for member in self.serving.values_mut().filter(|member| member.due.is_none()) {
            if let Some(why) = member.term.due(&member.wear(now)) {
                member.due = Some(Due::Worn(why));
                let (worker, reason) = (member.berth.id.to_string(), why.to_string().into());
                self.shared.announce(PoolEvent::WorkerDue { worker, reason });
            }
        }
    }

    fn think_about_size(&mut self, now: Instant) {
        self.sized_at = now;
        let Some(sizer) = &mut self.sizer else { return };
        let idle_ttl = sizer.idle_ttl();
        let long_idle = |member: &&Member| member.idle_for(now).is_some_and(|idle| idle >= idle_ttl);
        let given = self.buried_calls
            + self
                .serving
                .values()
                .chain(&self.leaving)
                .map(|member| member.berth.calls_given())
                .sum::<u64>();
        let (queued, head_waits) = {
            let scheduler = self.shared.scheduler();
            (scheduler.depth(), scheduler.head_waits(now))
        };
        let seen = Observation {
            queued,
            head_waits,
            serving: self.serving.len(),
            starting: self.starting.len(),
            busy: self.serving.values().filter(|member| member.berth.holds_calls()).count(),
            long_idle: self.serving.values().filter(long_idle).count(),
            arrived: given + queued as u64,
            finished: given.saturating_sub(self.shared.in_hand() as u64),
        };
        let wanted = sizer.decide(&seen, now);
        self.resize(wanted);
    }

    /// Reads what the workers hold, away from here: the kernel takes its time.
    fn read_memory(&self) {
        let Some(limit) = self.generation.config.recycling.max_rss else { return };
        let berths: Vec<_> = self.serving.values().map(|member| Arc::clone(&member.berth)).collect();
        let (news, has_shims) = (self.news.clone(), self.has_shims());
        tokio::task::spawn_blocking(move || {
            let look = |berth: Arc<Berth>| Seen { memory: memory_of(&berth, limit, has_shims), berth };
            let _ = news.send(News::Seen(berths.into_iter().map(look).collect()));
        });
    }

    pub(super) fn note_memory(&mut self, seen: Vec<Seen>) {
        for Seen { berth, memory } in seen {
            let Some(member) = self.serving.get_mut(&berth.post) else { continue };
            if !Arc::ptr_eq(&member.berth, &berth) {
                continue;
            }
            member.notes.memory = memory;
            if let Some(memory) = memory {
                let counts = berth.take_counts();
                let calls = counts.iter().map(|(command, count)| (&**command, *count));
                let mut growth = self.shared.growth();
                growth.observe(&mut member.notes.gauge, memory, calls);
            }
        }
    }
}

/// What a worker and all that it started hold: memory that they share is divided among them where that matters.
fn memory_of(berth: &Berth, limit: u64, has_shims: bool) -> Option<u64> {
    let process = berth.handle.process()?;
    let shim = has_shims.then(|| process.shim_pid());
    let vitals = Vitals::read(process.pid(), shim, Pss::Skip)?;
    if vitals.rss_bytes < limit || vitals.processes < 2 {
        return Some(vitals.rss_bytes);
    }
    let exact = Vitals::read(process.pid(), shim, Pss::Measure)?;
    Some(exact.pss_bytes.unwrap_or(exact.rss_bytes))
}
