//! From the first instruction of the command to its end: one loop that learns of everything and decides.
//!
//! Signals come from the signalfd, the custody's events and the end of all copies from threads that ring a bell.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use snakepit::custody::{Event, Events, Exit, Run, Worker, WorkerId};

use super::orphans;
use super::signals::{Reach, Signals, Woken};
use super::terminal::Terminal;

/// Something to decide about.
enum Happening {
    Signal(Signal),
    Stopped(Signal),
    AllEnded(Vec<Exit>),
    /// The time has come that the phase was waiting for.
    Deadline,
}

/// What the threads tell the loop.
enum Letter {
    Event(Event, Instant),
    AllEnded(Vec<Exit>),
}

/// Everything that can happen, in one place to wait.
pub(super) struct Inbox {
    signals: Signals,
    run: Run,
    letters: Receiver<Letter>,
    bell: Arc<OwnedFd>,
    ended_at: HashMap<WorkerId, Instant>,
}

impl Inbox {
    pub(super) fn new(
        signals: Signals,
        run: &Run,
        events: Option<Events>,
        workers: &[Worker],
    ) -> io::Result<Self> {
        let (post, letters) = channel();
        let bell = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        let ring = |post: Sender<Letter>, bell: Arc<OwnedFd>| {
            move |letter| {
                let _ = post.send(letter);
                let _ = rustix::io::write(&*bell, &1_u64.to_ne_bytes());
            }
        };

        let send = ring(post.clone(), Arc::clone(&bell));
        std::thread::Builder::new().name("events".into()).spawn(move || {
            for event in events.into_iter().flatten() {
                send(Letter::Event(event, Instant::now()));
            }
        })?;
        let send = ring(post, Arc::clone(&bell));
        let workers = workers.to_vec();
        std::thread::Builder::new().name("ends".into()).spawn(move || {
            send(Letter::AllEnded(workers.iter().map(Worker::wait).collect()));
        })?;
        Ok(Self { signals, run: run.clone(), letters, bell, ended_at: HashMap::new() })
    }

    /// Waits for the next thing to decide about, at the longest until `deadline`.
    fn next(&mut self, deadline: Option<Instant>) -> Happening {
        loop {
            if let Some(signal) = self.signals.next() {
                return Happening::Signal(signal);
            }
            if let Some(happening) = self.read_letters() {
                return happening;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Happening::Deadline;
            }
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            let mut doors = [
                PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.bell.as_fd(), PollFlags::IN),
            ];
            // Interrupted or not, the next round looks at everything.
            let _ = poll(&mut doors, left.as_ref());
            let _ = rustix::io::read(&*self.bell, &mut [0; 8]);
        }
    }

    /// Reads what is there. Of several stops and continuations only the last one still holds.
    fn read_letters(&mut self) -> Option<Happening> {
        let mut happening = None;
        for letter in self.letters.try_iter() {
            match letter {
                Letter::AllEnded(exits) => return Some(Happening::AllEnded(exits)),
                Letter::Event(Event::Stopped { signal, .. }, _) => {
                    happening = Signal::try_from(signal).ok().map(Happening::Stopped);
                }
                Letter::Event(Event::Continued { .. }, _) => happening = None,
                Letter::Event(Event::Exited { worker, .. }, at) => {
                    self.ended_at.insert(worker, at);
                }
                // The rest is for the ledger and for telemetry.
                Letter::Event(_, _) => {}
            }
        }
        happening
    }
}

/// How far the run is.
#[derive(Clone, Copy)]
enum Phase {
    Running {
        timeout_at: Option<Instant>,
    },
    /// TERM or HUP has been sent.
    Ending {
        kill_at: Instant,
        because: Because,
    },
}

impl Phase {
    fn deadline(self) -> Option<Instant> {
        match self {
            Self::Running { timeout_at } => timeout_at,
            Self::Ending { kill_at, .. } => Some(kill_at),
        }
    }
}

/// Why the command was told to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Because {
    /// Nobody told it.
    OfItself,
    /// A TERM or HUP to us.
    Signalled,
    /// `--timeout`.
    TimedOut,
}

/// How the watch was over.
pub(super) enum End {
    /// All copies have ended.
    Natural { because: Because, exits: Vec<Exit>, ended_at: HashMap<WorkerId, Instant> },
    /// The grace is over, and somebody is still there.
    Overdue { because: Because },
}

/// The loop and what it decides about.
pub(super) struct Watch<'a> {
    workers: &'a [Worker],
    inbox: Inbox,
    terminal: Option<&'a mut Terminal>,
    grace: Duration,
    phase: Phase,
}

impl<'a> Watch<'a> {
    pub(super) fn new(
        workers: &'a [Worker],
        inbox: Inbox,
        terminal: Option<&'a mut Terminal>,
        grace: Duration,
        timeout: Option<Duration>,
    ) -> Self {
        let timeout_at = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        Self { workers, inbox, terminal, grace, phase: Phase::Running { timeout_at } }
    }

    /// Watches until all have ended, or until it is time to kill.
    pub(super) fn until_over(mut self) -> End {
        loop {
            match (self.inbox.next(self.phase.deadline()), self.phase) {
                (Happening::AllEnded(exits), phase) => {
                    let because = match phase {
                        Phase::Running { .. } => Because::OfItself,
                        Phase::Ending { because, .. } => because,
                    };
                    return End::Natural { because, exits, ended_at: self.inbox.ended_at };
                }
                (Happening::Deadline, Phase::Running { .. }) => {
                    self.begin_to_end(Signal::SIGTERM, Because::TimedOut);
                }
                (Happening::Deadline, Phase::Ending { because, .. }) => return End::Overdue { because },
                (Happening::Signal(signal), Phase::Running { .. }) => self.answer(signal),
                (Happening::Signal(signal), Phase::Ending { .. }) => self.answer_while_ending(signal),
                (Happening::Stopped(signal), Phase::Running { .. }) => self.follow_stop(signal),
                // Who stops now is killed when the grace is over.
                (Happening::Stopped(_), Phase::Ending { .. }) => {}
            }
        }
    }

    fn answer(&mut self, signal: Signal) {
        match signal {
            Signal::SIGTERM | Signal::SIGHUP => self.begin_to_end(signal, Because::Signalled),
            Signal::SIGTSTP => self.suspend(),
            Signal::SIGCONT => self.resume(false),
            Signal::SIGCHLD => orphans::bury(&self.inbox.run),
            other => self.pass_on(other),
        }
    }

    /// The first TERM or HUP counts. `timeout` sends it twice, for one, so a second one must not cut the grace.
    fn answer_while_ending(&mut self, signal: Signal) {
        match signal {
            Signal::SIGTERM | Signal::SIGHUP | Signal::SIGTSTP => {}
            Signal::SIGCHLD => orphans::bury(&self.inbox.run),
            other => self.pass_on(other),
        }
    }

    fn begin_to_end(&mut self, signal: Signal, because: Because) {
        self.pass_on(signal);
        // Who is stopped could not hear it.
        self.pass_on(Signal::SIGCONT);
        let kill_at = Instant::now().checked_add(self.grace).unwrap_or_else(far_away);
        self.phase = Phase::Ending { kill_at, because };
    }

    fn pass_on(&self, signal: Signal) {
        for worker in self.workers {
            // Whoever has ended meanwhile needs no signal.
            let _ = worker.signal(signal as i32);
        }
    }

    /// Somebody stops us with TSTP. On a terminal we follow the command, which may have its own mind about it.
    fn suspend(&mut self) {
        if self.terminal.is_some() {
            self.pass_on(Signal::SIGTSTP);
            return;
        }
        // In a session of its own the command's group is an orphaned one, in which TSTP stops nobody.
        self.pass_on(Signal::SIGSTOP);
        self.inbox.signals.stop(Signal::SIGTSTP, Reach::Ourselves);
        self.pass_on(Signal::SIGCONT);
    }

    /// The command was stopped: what a shell sees as its job is us, so we stop as well.
    fn follow_stop(&mut self, signal: Signal) {
        let [worker] = self.workers else { return };
        let Some(terminal) = &mut self.terminal else { return };
        let asks = matches!(signal, Signal::SIGTTIN | Signal::SIGTTOU);
        if asks && terminal.lend(worker.pgid()) {
            self.pass_on(Signal::SIGCONT);
            return;
        }
        let lent = terminal.is_lent();
        terminal.take_back();
        // STOP has no default action to share with others of our group, such as a script that waits for us.
        let reach = if signal == Signal::SIGSTOP { Reach::Ourselves } else { Reach::Group };
        let woken = self.inbox.signals.stop(signal, reach);
        if woken == Woken::NeverSlept && asks {
            // Nobody is there who could ever give it the terminal: what the kernel does with orphaned groups.
            self.pass_on(Signal::SIGHUP);
        }
        self.resume(lent);
    }

    fn resume(&mut self, lent_before: bool) {
        if let ([worker], Some(terminal)) = (self.workers, &mut self.terminal) {
            terminal.lend_again(worker.pgid(), lent_before);
        }
        self.pass_on(Signal::SIGCONT);
    }
}

/// A time that does not come.
fn far_away() -> Instant {
    Instant::now() + Duration::from_secs(u64::from(u32::MAX))
}
