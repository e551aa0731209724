//! A thread that tells of loops that are stuck, and then acts. It needs no runtime: a handler that blocks the only thread of
//! one is what it is for.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedSender;

use super::{InHand, Runnable};
use crate::telemetry::{Event, Level, emit_with};

/// How long the worker may take to tell where it is.
const STACK_PATIENCE: Duration = Duration::from_secs(3);
/// The quickest look around, and the slowest.
const LOOKS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// What is done about a loop that is stuck, after it was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum IfStuck {
    /// Nothing.
    #[default]
    Tell,
    /// The loop is dropped, what it held is given back, and it is run again.
    Restart,
    /// That, and if it is still stuck after the grace, the process ends with this status: its mailbox, and those who watch the
    /// process, do the rest.
    RestartThenExit {
        /// The status.
        status: u8,
        /// The grace.
        grace: Duration,
    },
}

/// When a loop is stuck, and what is done about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Watchdog {
    /// A message has been in hand for so long, and its handler has not [beaten](super::beat) since.
    pub message_limit: Duration,
    /// A message has been in hand for so long without a beat that its group is not alive any more, and whoever probes it ends the
    /// process. None: no message is a reason for that, however long it takes.
    pub liveness_limit: Option<Duration>,
    /// A loop has not turned for so long; it turns every five seconds at least.
    pub turn_limit: Duration,
    /// What is done about it.
    pub then: IfStuck,
}

impl Default for Watchdog {
    fn default() -> Self {
        Self {
            message_limit: Duration::from_mins(10),
            liveness_limit: None,
            turn_limit: Duration::from_mins(1),
            then: IfStuck::default(),
        }
    }
}

impl Watchdog {
    /// Tells of messages that take ten minutes, and of loops that have not turned for one.
    pub fn new() -> Self {
        Self::default()
    }

    /// A message may be in hand for so long without a beat.
    pub fn message_limit(mut self, limit: Duration) -> Self {
        self.message_limit = limit;
        self
    }

    /// A message that is in hand for so long without a beat makes the group not alive.
    pub fn liveness_limit(mut self, limit: Duration) -> Self {
        self.liveness_limit = Some(limit);
        self
    }

    /// A loop has to turn within so long.
    pub fn turn_limit(mut self, limit: Duration) -> Self {
        self.turn_limit = limit;
        self
    }

    /// What is done about a loop that is stuck.
    pub fn then(mut self, then: IfStuck) -> Self {
        self.then = then;
        self
    }
}

/// A watchdog at work, for as long as this is held.
#[derive(Debug)]
pub(super) struct Watch {
    /// Dropped, it ends the thread, which is not waited for: it may be asking a worker where it is.
    _over: Sender<()>,
}

impl Watch {
    pub(super) fn start(
        watchdog: Watchdog,
        loops: Vec<Arc<dyn Runnable>>,
        restart: UnboundedSender<usize>,
    ) -> io::Result<Self> {
        let (over, ends) = channel::<()>();
        let runtime = Handle::current();
        let limit = watchdog.message_limit.min(watchdog.turn_limit);
        let look = (limit / 4).clamp(LOOKS.0, LOOKS.1);
        let mut eye = Eye { watchdog, loops, restart, runtime, told: HashMap::new() };
        std::thread::Builder::new().name("snakepit-watchdog".to_owned()).spawn(move || {
            while ends.recv_timeout(look) == Err(RecvTimeoutError::Timeout) {
                eye.look();
            }
        })?;
        Ok(Self { _over: over })
    }
}

/// What a loop is stuck with: the number of a handling, or its own turn.
type Snag = (usize, Option<u64>);

struct Eye {
    watchdog: Watchdog,
    loops: Vec<Arc<dyn Runnable>>,
    restart: UnboundedSender<usize>,
    runtime: Handle,
    told: HashMap<Snag, Instant>,
}

impl Eye {
    fn look(&mut self) {
        let mut seen = HashSet::new();
        for index in 0..self.loops.len() {
            let control = self.loops[index].control().clone();
            for held in control.in_hand() {
                let quiet = held.last_beat.elapsed();
                if quiet >= self.watchdog.message_limit {
                    seen.insert((index, Some(held.number)));
                    self.found(index, Some(&held), quiet);
                }
            }
            let age = control.heartbeat().age();
            if control.running() && age >= self.watchdog.turn_limit {
                seen.insert((index, None));
                self.found(index, None, age);
            }
        }
        self.told.retain(|snag, _| seen.contains(snag));
    }

    fn found(&mut self, index: usize, held: Option<&InHand>, lasted: Duration) {
        let snag = (index, held.map(|held| held.number));
        if let Some(told) = self.told.get(&snag) {
            let told = *told;
            return self.insist(told);
        }
        self.told.insert(snag, Instant::now());
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
            // A group that is gone restarts nothing.
            let _ = self.restart.send(index);
        }
    }

    /// It was told, and a restart did not help.
    fn insist(&self, told: Instant) {
        if let IfStuck::RestartThenExit { status, grace } = self.watchdog.then
            && told.elapsed() >= grace
        {
            crate::lifecycle::exit(status.into());
        }
    }

    /// Where the worker is that handles the messages; nothing if the runtime is stuck itself.
    fn stack(&self, index: usize) -> Option<String> {
        let (answer, answered) = channel();
        let stacks = self.loops[index].control().stacks();
        self.runtime.spawn(async move {
            // Whoever asked may have given up.
            let _ = answer.send(stacks.await);
        });
        answered.recv_timeout(STACK_PATIENCE).ok().flatten()
    }
}
