//! What comes from outside while a call is under way: signals, and the end of whoever read our output.
//!
//! A thread of its own waits for both, so that they are heard however busy or blocked the rest is. The third signal ends
//! the process at once; its keeper ends what it had started.

use std::io;
use std::os::fd::AsFd;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, poll};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::signals::ignored_at_start;

/// Something that changes what is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Happening {
    Signal(Signal),
    /// Nobody reads what we print any more.
    Unread,
}

/// What is listened to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attention {
    Signals,
    /// A stream may be silent for long: that its reader has gone must not wait for the next value.
    SignalsAndReader,
}

const ANSWERED: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// The signal at which patience ends.
const LAST: usize = 3;

pub(crate) struct Outside(UnboundedReceiver<Happening>);

impl Outside {
    /// Takes the signals over. To be called before the first thread is started, since threads inherit the mask.
    pub(crate) fn watch(attention: Attention) -> io::Result<Self> {
        let ignored = ignored_at_start();
        // What is ignored from the start stays so: nohup means it.
        let set: SigSet = ANSWERED.into_iter().filter(|signal| !ignored.contains(*signal)).collect();
        let signals = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        set.thread_block()?;
        // Bounded: the last signal that is counted ends the process, and a reader goes away once.
        let (post, happenings) = unbounded_channel();
        std::thread::Builder::new()
            .name("outside".into())
            .spawn(move || listen(&signals, attention, &post))?;
        Ok(Self(happenings))
    }

    /// The next happening. Cancel-safe; never ready again once the listener is gone.
    pub(crate) async fn next(&mut self) -> Happening {
        match self.0.recv().await {
            Some(happening) => happening,
            None => std::future::pending().await,
        }
    }
}

fn listen(signals: &SignalFd, attention: Attention, post: &UnboundedSender<Happening>) {
    let stdout = std::io::stdout();
    let mut watch_reader = attention == Attention::SignalsAndReader;
    let mut heard = 0;
    loop {
        // Of a pipe or socket without a reader, the error is told although nothing is asked for.
        let mut doors = vec![PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
        if watch_reader {
            doors.push(PollFd::from_borrowed_fd(stdout.as_fd(), PollFlags::empty()));
        }
        if poll(&mut doors, None).is_err_and(|error| error != rustix::io::Errno::INTR) {
            return;
        }
        if doors.get(1).is_some_and(|door| !door.revents().is_empty()) {
            watch_reader = false;
            let _ = post.send(Happening::Unread);
        }
        while let Ok(Some(info)) = signals.read_signal() {
            let Ok(signal) = Signal::try_from(info.ssi_signo as i32) else { continue };
            heard += 1;
            if heard == LAST {
                std::process::exit(128 + signal as i32);
            }
            let _ = post.send(Happening::Signal(signal));
        }
    }
}
