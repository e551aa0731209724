//! What interrupts work that is under way: signals, and the end of whoever read our output.
//!
//! A thread of its own waits for both, so they are noticed however busy or blocked the rest is. The third signal ends the
//! process at once; its keeper ends what the process had started.

use std::io;
use std::os::fd::AsFd;

use nix::sys::signal::Signal;
use rustix::event::{PollFd, PollFlags, poll};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::shared::exit_status;
use crate::shared::failure::CliFailure;
use crate::shared::signals::SignalReader;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Interrupt {
    Signal(Signal),
    /// Nobody reads our output any more.
    ReaderGone,
}

impl Interrupt {
    /// The exit status of a command that ends because of it.
    pub(crate) fn status(self) -> u8 {
        match self {
            Self::Signal(signal) => exit_status::of_signal(signal),
            Self::ReaderGone => exit_status::SUCCESS,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchedSources {
    Signals,
    /// A stream may be silent for long: the end of its reader must not wait for the next value.
    SignalsAndReader,
}

/// The signal that ends the process at once.
const LAST: usize = 3;

pub(crate) struct Interrupts(UnboundedReceiver<Interrupt>);

impl Interrupts {
    /// Takes INT, TERM and HUP over. Call it before the first thread starts: threads inherit the signal mask.
    pub(crate) fn watch(sources: WatchedSources) -> Result<Self, CliFailure> {
        Self::listen(sources).map_err(|error| CliFailure::new("cannot listen for signals", &error))
    }

    fn listen(sources: WatchedSources) -> io::Result<Self> {
        let signals = SignalReader::new(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP], &[])?;
        // Holds at most three interrupts: the last signal ends the process, and the reader goes away once.
        let (sender, received) = unbounded_channel();
        let forward = move || forward(&signals, sources, &sender);
        std::thread::Builder::new().name("interrupts".into()).spawn(forward)?;
        Ok(Self(received))
    }

    /// The next interrupt. Cancel-safe; pending for ever once the thread has ended.
    pub(crate) async fn next(&mut self) -> Interrupt {
        match self.0.recv().await {
            Some(interrupt) => interrupt,
            None => std::future::pending().await,
        }
    }

    /// The next signal. Cancel-safe.
    pub(crate) async fn signal(&mut self) -> Signal {
        loop {
            if let Interrupt::Signal(signal) = self.next().await {
                return signal;
            }
        }
    }
}

fn forward(signals: &SignalReader, sources: WatchedSources, sender: &UnboundedSender<Interrupt>) {
    let stdout = std::io::stdout();
    let mut watch_reader = sources == WatchedSources::SignalsAndReader;
    let mut count = 0;
    loop {
        let mut fds = vec![PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
        if watch_reader {
            // A pipe or socket without a reader reports an error although no event is asked for.
            fds.push(PollFd::from_borrowed_fd(stdout.as_fd(), PollFlags::empty()));
        }
        if poll(&mut fds, None).is_err_and(|error| error != rustix::io::Errno::INTR) {
            return;
        }
        if fds.get(1).is_some_and(|reader| !reader.revents().is_empty()) {
            watch_reader = false;
            let _ = sender.send(Interrupt::ReaderGone);
        }
        while let Some(signal) = signals.read() {
            count += 1;
            if count == LAST {
                std::process::exit(exit_status::of_signal(signal).into());
            }
            let _ = sender.send(Interrupt::Signal(signal));
        }
    }
}
