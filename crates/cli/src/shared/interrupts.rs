//! The interruptions of work: signals, and the loss of the reader of our output.
//!
//! A separate thread waits for both and notices them even if the rest is busy or blocked. The third signal ends the
//! process at once, and its keeper ends the processes that were started.

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
    /// The reader of our output has gone.
    ReaderGone,
}

impl Interrupt {
    /// Returns the exit status of a command that ends because of the interrupt.
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
    /// A stream may be silent for a long time. The loss of its reader must be noticed before the next value.
    SignalsAndReader,
}

/// The number of the signal that ends the process at once.
const LAST: usize = 3;

pub(crate) struct Interrupts(UnboundedReceiver<Interrupt>);

impl Interrupts {
    /// Takes over INT, TERM and HUP. Call this before the first thread starts, because threads inherit the signal mask.
    pub(crate) fn watch(sources: WatchedSources) -> Result<Self, CliFailure> {
        Self::listen(sources).map_err(|error| CliFailure::new("cannot listen for signals", &error))
    }

    fn listen(sources: WatchedSources) -> io::Result<Self> {
        let signals = SignalReader::new(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP], &[])?;
        // The channel holds at most three interrupts: the last signal ends the process, and the reader goes away only
        // once.
        let (sender, received) = unbounded_channel();
        let forward = move || forward(&signals, sources, &sender);
        std::thread::Builder::new().name("interrupts".into()).spawn(forward)?;
        Ok(Self(received))
    }

    /// Returns the next interrupt. Cancel-safe. Never returns once the thread has ended.
    pub(crate) async fn next(&mut self) -> Interrupt {
        match self.0.recv().await {
            Some(interrupt) => interrupt,
            None => std::future::pending().await,
        }
    }

    /// Returns the next signal. Cancel-safe.
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
            // A pipe or socket without a reader reports an error even if no event is requested.
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
