//! Watches the command from its first instruction to its end. One loop receives every event and decides.
//!
//! Signals come from the signalfd. Threads forward custody's events and the end of all copies, and wake the loop by an
//! eventfd.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use snakepit::custody::{CustodyEvent, CustodyEvents, Exit, Run, WorkerId, WorkerProcess};

use super::job_signals::{JobSignals, StopResult, StopTarget};
use super::orphans;
use super::terminal::{ControllingTerminal, TerminalHolder};

/// An event that the loop decides about.
enum WatchEvent {
    Signal(Signal),
    Stopped(Signal),
    AllEnded(Vec<Exit>),
    /// The deadline of the phase.
    Deadline,
}

/// A message from a thread to the loop.
enum ThreadMessage {
    Event(CustodyEvent, Instant),
    AllEnded(Vec<Exit>),
}

/// All events, in one place to wait for.
pub(super) struct EventSource {
    signals: JobSignals,
    run: Run,
    messages: Receiver<ThreadMessage>,
    wakeup: Arc<OwnedFd>,
    ended_at: HashMap<WorkerId, Instant>,
}

impl EventSource {
    pub(super) fn new(
        signals: JobSignals,
        run: &Run,
        events: Option<CustodyEvents>,
        workers: &[WorkerProcess],
    ) -> io::Result<Self> {
        // An unbounded channel is enough: custody reports only starts, stops and ends of the copies, and every wakeup
        // drains the channel.
        let (sender, messages) = channel();
        let wakeup = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        let ring = |sender: Sender<ThreadMessage>, wakeup: Arc<OwnedFd>| {
            move |message| {
                let _ = sender.send(message);
                let _ = rustix::io::write(&*wakeup, &1_u64.to_ne_bytes());
            }
        };

        let send = ring(sender.clone(), Arc::clone(&wakeup));
        std::thread::Builder::new().name("events".into()).spawn(move || {
            for event in events.into_iter().flatten() {
                send(ThreadMessage::Event(event, Instant::now()));
            }
        })?;
        let send = ring(sender, Arc::clone(&wakeup));
        let workers = workers.to_vec();
        std::thread::Builder::new().name("ends".into()).spawn(move || {
            send(ThreadMessage::AllEnded(workers.iter().map(WorkerProcess::wait).collect()));
        })?;
        Ok(Self { signals, run: run.clone(), messages, wakeup, ended_at: HashMap::new() })
    }

    /// Waits for the next event, at most until `deadline`.
    fn next(&mut self, deadline: Option<Instant>) -> WatchEvent {
        loop {
            if let Some(signal) = self.signals.next() {
                return WatchEvent::Signal(signal);
            }
            if let Some(event) = self.read_letters() {
                return event;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return WatchEvent::Deadline;
            }
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            let mut fds = [
                PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.wakeup.as_fd(), PollFlags::IN),
            ];
            // Interrupted or not, the next round checks every source.
            let _ = poll(&mut fds, left.as_ref());
            let _ = rustix::io::read(&*self.wakeup, &mut [0; 8]);
        }
    }

    /// Reads the pending messages. Of several stops and continuations, only the last one counts.
    fn read_letters(&mut self) -> Option<WatchEvent> {
        let mut event = None;
        for message in self.messages.try_iter() {
            match message {
                ThreadMessage::AllEnded(exits) => return Some(WatchEvent::AllEnded(exits)),
                ThreadMessage::Event(CustodyEvent::Stopped { signal, .. }, _) => {
                    event = Signal::try_from(signal).ok().map(WatchEvent::Stopped);
                }
                ThreadMessage::Event(CustodyEvent::Continued { .. }, _) => event = None,
                ThreadMessage::Event(CustodyEvent::Exited { worker, .. }, at) => {
                    self.ended_at.insert(worker, at);
                }
                // The other events are for the ledger and for telemetry.
                ThreadMessage::Event(_, _) => {}
            }
        }
        event
    }
}

/// The phase of the run.
#[derive(Clone, Copy)]
enum WatchPhase {
    Running {
        timeout_at: Option<Instant>,
    },
    /// TERM or HUP was sent.
    Ending {
        kill_at: Instant,
        cause: EndCause,
    },
}

impl WatchPhase {
    fn deadline(self) -> Option<Instant> {
        match self {
            Self::Running { timeout_at } => timeout_at,
            Self::Ending { kill_at, .. } => Some(kill_at),
        }
    }
}

/// The reason why the command ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EndCause {
    /// The command ended without our doing.
    Command,
    /// TERM or HUP reached us.
    Signal,
    /// `--timeout` passed.
    Timeout,
}

/// How the watch ended.
pub(super) enum WatchEnd {
    /// All copies have ended.
    Natural { cause: EndCause, exits: Vec<Exit>, ended_at: HashMap<WorkerId, Instant> },
    /// The grace period is over, and a copy still runs.
    Overdue { cause: EndCause },
}

/// The loop and its state.
pub(super) struct CommandWatch<'a> {
    workers: &'a [WorkerProcess],
    source: EventSource,
    terminal: Option<&'a mut ControllingTerminal>,
    grace: Duration,
    phase: WatchPhase,
}

impl<'a> CommandWatch<'a> {
    pub(super) fn new(
        workers: &'a [WorkerProcess],
        source: EventSource,
        terminal: Option<&'a mut ControllingTerminal>,
        grace: Duration,
        timeout: Option<Duration>,
    ) -> Self {
        let timeout_at = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        Self { workers, source, terminal, grace, phase: WatchPhase::Running { timeout_at } }
    }

    /// Watches until all copies have ended or it is time to kill them.
    pub(super) fn until_over(mut self) -> WatchEnd {
        loop {
            match (self.source.next(self.phase.deadline()), self.phase) {
                (WatchEvent::AllEnded(exits), phase) => {
                    let cause = match phase {
                        WatchPhase::Running { .. } => EndCause::Command,
                        WatchPhase::Ending { cause, .. } => cause,
                    };
                    return WatchEnd::Natural { cause, exits, ended_at: self.source.ended_at };
                }
                (WatchEvent::Deadline, WatchPhase::Running { .. }) => {
                    self.begin_to_end(Signal::SIGTERM, EndCause::Timeout);
                }
                (WatchEvent::Deadline, WatchPhase::Ending { cause, .. }) => {
                    return WatchEnd::Overdue { cause };
                }
                (WatchEvent::Signal(signal), WatchPhase::Running { .. }) => self.answer(signal),
                (WatchEvent::Signal(signal), WatchPhase::Ending { .. }) => self.answer_while_ending(signal),
                (WatchEvent::Stopped(signal), WatchPhase::Running { .. }) => self.follow_stop(signal),
                // A copy that stops now is killed when the grace period is over.
                (WatchEvent::Stopped(_), WatchPhase::Ending { .. }) => {}
            }
        }
    }

    fn answer(&mut self, signal: Signal) {
        match signal {
            Signal::SIGTERM | Signal::SIGHUP => self.begin_to_end(signal, EndCause::Signal),
            Signal::SIGTSTP => self.suspend(),
            Signal::SIGCONT => self.resume(TerminalHolder::Home),
            Signal::SIGCHLD => orphans::reap(&self.source.run),
            other => self.pass_on(other),
        }
    }

    /// Answers a signal while the command ends. Only the first TERM or HUP counts: `timeout`, for example, sends TERM
    /// twice, which must not shorten the grace period.
    fn answer_while_ending(&mut self, signal: Signal) {
        match signal {
            Signal::SIGTERM | Signal::SIGHUP | Signal::SIGTSTP => {}
            Signal::SIGCHLD => orphans::reap(&self.source.run),
            other => self.pass_on(other),
        }
    }

    fn begin_to_end(&mut self, signal: Signal, cause: EndCause) {
        self.pass_on(signal);
        // A stopped process does not act on the signal until it continues.
        self.pass_on(Signal::SIGCONT);
        let kill_at = Instant::now().checked_add(self.grace).unwrap_or_else(far_future);
        self.phase = WatchPhase::Ending { kill_at, cause };
    }

    fn pass_on(&self, signal: Signal) {
        for worker in self.workers {
            // A copy that has ended meanwhile needs no signal.
            let _ = worker.signal(signal as i32);
        }
    }

    /// Suspends the command when TSTP reaches us. On a terminal we follow the command, which may ignore the signal.
    fn suspend(&mut self) {
        if self.terminal.is_some() {
            self.pass_on(Signal::SIGTSTP);
            return;
        }
        // In a session of its own, the command's group is orphaned, and TSTP stops no process of an orphaned group.
        self.pass_on(Signal::SIGSTOP);
        self.source.signals.stop(Signal::SIGTSTP, StopTarget::Process);
        self.pass_on(Signal::SIGCONT);
    }

    /// Stops this process after the command was stopped, because a shell sees this process as its job.
    fn follow_stop(&mut self, signal: Signal) {
        let [worker] = self.workers else { return };
        let Some(terminal) = &mut self.terminal else { return };
        let asks = matches!(signal, Signal::SIGTTIN | Signal::SIGTTOU);
        if asks && terminal.lend(worker.pgid()) {
            self.pass_on(Signal::SIGCONT);
            return;
        }
        let holder = terminal.holder();
        terminal.take_back();
        // STOP was sent to the command alone. Other members of our group, such as a script that waits for us, go on.
        let scope = if signal == Signal::SIGSTOP { StopTarget::Process } else { StopTarget::Group };
        let result = self.source.signals.stop(signal, scope);
        if result == StopResult::NotStopped && asks {
            // No process could ever give the terminal to the command, so we do what the kernel does to orphaned groups.
            self.pass_on(Signal::SIGHUP);
        }
        self.resume(holder);
    }

    fn resume(&mut self, before: TerminalHolder) {
        if let ([worker], Some(terminal)) = (self.workers, &mut self.terminal) {
            terminal.lend_again(worker.pgid(), before);
        }
        self.pass_on(Signal::SIGCONT);
    }
}

/// Returns a time that never comes.
fn far_future() -> Instant {
    Instant::now() + Duration::from_secs(u64::from(u32::MAX))
}
