//! A thread that reports stuck loops, restarts them, or ends the process. It needs no runtime, because it must also
//! work if handlers block the only thread of the runtime.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedSender;

use super::real_now;
use crate::telemetry::{Event, Level, emit_with};
use crate::{InFlight, Runnable};
#[cfg(feature = "config")]
use snakepit_settings::HumanTime;
use snakepit_settings::settings;

/// The time that a worker has to show its stacks.
const STACK_TIMEOUT: Duration = Duration::from_secs(3);
/// The number of checks within the shorter limit.
const CHECKS_PER_LIMIT: u32 = 4;
/// The shortest and the longest pause between two checks.
const CHECK_PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// What the watchdog does about a stuck loop besides emitting the event.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum IfStuck {
    /// Nothing.
    #[default]
    Tell,
    /// The loop is dropped, its messages are given back, and it runs again.
    Restart,
    /// The loop is restarted. If it is still stuck after the grace period, the process ends with this status, and the
    /// mailbox and the process manager take over.
    RestartThenExit {
        /// The exit status of the process.
        status: u8,
        /// How long the restart may take to help.
        grace: Duration,
    },
}

settings! {
    /// When a loop counts as stuck, and what happens then. Handlers report progress with [`beat`](crate::beat).
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use snakepit::loops::{IfStuck, LoopGroup, Watchdog};
    ///
    /// let watchdog = Watchdog::new().message_limit(Duration::from_mins(2)).then(IfStuck::Restart);
    /// let group = LoopGroup::new("service").watchdog(watchdog);
    /// ```
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Watchdog {
        /// How long a message may be handled without progress before an event reports it.
        message_limit: Duration as HumanTime = Duration::from_mins(10),
        /// How long one turn of a loop may take before an event reports it.
        turn_limit: Duration as HumanTime = Duration::from_mins(1),
        /// How long a message may be handled without progress before /livez fails. Unset: without limit. Example:
        /// `liveness_limit = "1h"`.
        @into liveness_limit: Option<Duration> as Option<HumanTime> = None,
    }
    also {
        /// What happens to a stuck loop.
        then: IfStuck = IfStuck::default(),
    }
}

impl Watchdog {
    /// Returns a watchdog that reports messages that take ten minutes and loops without a heartbeat for a minute.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets what happens to a stuck loop.
    pub fn then(mut self, then: IfStuck) -> Self {
        self.then = then;
        self
    }
}

/// The guard of the watchdog's thread, which ends when the guard is dropped.
#[derive(Debug)]
pub(crate) struct WatchdogGuard {
    /// Dropping this ends the thread without waiting for it, because the thread may be waiting for a worker's stacks.
    _stop: Sender<()>,
}

impl WatchdogGuard {
    pub(crate) fn start(
        watchdog: Watchdog,
        loops: Vec<Arc<dyn Runnable>>,
        restart: UnboundedSender<usize>,
    ) -> io::Result<Self> {
        let (stop, stopped) = channel::<()>();
        let limit = watchdog.message_limit.min(watchdog.turn_limit);
        let pause = (limit / CHECKS_PER_LIMIT).clamp(CHECK_PAUSES.0, CHECK_PAUSES.1);
        let runtime = Handle::current();
        let mut thread = WatchdogThread { watchdog, loops, restart, runtime, reported: HashMap::new() };
        std::thread::Builder::new().name("snakepit-watchdog".to_owned()).spawn(move || {
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                thread.check();
            }
        })?;
        Ok(Self { _stop: stop })
    }
}

/// The key of something stuck: the index of a loop, and the number of a handling or `None` for the loop's own
/// heartbeat.
type StuckKey = (usize, Option<u64>);

struct WatchdogThread {
    watchdog: Watchdog,
    loops: Vec<Arc<dyn Runnable>>,
    restart: UnboundedSender<usize>,
    runtime: Handle,
    /// What was reported, and when.
    reported: HashMap<StuckKey, Instant>,
}

impl WatchdogThread {
    fn check(&mut self) {
        let mut stuck = HashSet::new();
        for index in 0..self.loops.len() {
            let control = self.loops[index].control().clone();
            for held in control.in_flight_messages() {
                let quiet = held.last_beat.elapsed();
                if quiet >= self.watchdog.message_limit {
                    stuck.insert((index, Some(held.number)));
                    self.act(index, Some(&held), quiet);
                }
            }
            let age = control.heartbeat().age();
            if control.running() && age >= self.watchdog.turn_limit {
                stuck.insert((index, None));
                self.act(index, None, age);
            }
        }
        self.reported.retain(|key, _| stuck.contains(key));
    }

    /// Reports a stuck message or loop and restarts the loop. The next time, checks whether the restart helped.
    fn act(&mut self, index: usize, held: Option<&InFlight>, lasted: Duration) {
        let key = (index, held.map(|held| held.number));
        if let Some(reported) = self.reported.get(&key) {
            return self.exit_after_grace(*reported);
        }
        self.reported.insert(key, real_now());
        let control = self.loops[index].control();
        let stack = self.stack(index);
        emit_with(Level::Warn, || Event::LoopStuck {
            name: control.name().into(),
            message_id: held.map(|held| held.message.as_str().into()),
            trace: held.and_then(|held| held.trace.as_deref().map(Into::into)),
            lasted,
            stack: stack.map(Into::into),
            then: match self.watchdog.then {
                IfStuck::Tell => "tell",
                IfStuck::Restart => "restart",
                IfStuck::RestartThenExit { .. } => "end_process",
            },
        });
        if self.watchdog.then != IfStuck::Tell {
            // A group that has ended does not restart anything.
            let _ = self.restart.send(index);
        }
    }

    fn exit_after_grace(&self, reported: Instant) {
        if let IfStuck::RestartThenExit { status, grace } = self.watchdog.then
            && reported.elapsed() >= grace
        {
            crate::lifecycle::exit(status.into());
        }
    }

    /// Returns the stacks of the worker that handles the messages, or `None` if the runtime itself is stuck.
    fn stack(&self, index: usize) -> Option<String> {
        let (answer, answered) = channel();
        let stacks = self.loops[index].control().stacks();
        self.runtime.spawn(async move {
            // The receiver may have given up.
            let _ = answer.send(stacks.await);
        });
        answered.recv_timeout(STACK_TIMEOUT).ok().flatten()
    }
}
