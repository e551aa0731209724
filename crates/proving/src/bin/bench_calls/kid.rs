//! A Python process of a floor or of a peer: started, spoken to, and gone when dropped, with its whole group.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use snakepit_proving::bench::Outcome;

/// What our sockets have as well: a megabyte then travels without a wait in its middle.
const SOCKET_BUFFER: usize = 4 << 20;

/// A process and the group that it leads.
pub(crate) struct Kid {
    child: Child,
    /// How long it may take to end by itself once its stdin has ended.
    grace: Duration,
}

impl Kid {
    fn start(command: &mut Command) -> Outcome<Self> {
        Ok(Self { child: command.process_group(0).spawn()?, grace: Duration::ZERO })
    }

    /// Starts it with one end of a socket pair as its descriptor 0; the other end is the caller's.
    pub(crate) fn with_socket(command: &mut Command) -> Outcome<(Self, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        for end in [&ours, &theirs] {
            // Beyond the system's limit if we may (root), up to it otherwise.
            if sockopt::set_socket_send_buffer_size_force(end, SOCKET_BUFFER).is_err() {
                sockopt::set_socket_send_buffer_size(end, SOCKET_BUFFER)?;
            }
            if sockopt::set_socket_recv_buffer_size_force(end, SOCKET_BUFFER).is_err() {
                sockopt::set_socket_recv_buffer_size(end, SOCKET_BUFFER)?;
            }
        }
        let kid = Self::start(command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()))?;
        // A `Command` keeps its descriptors until it is dropped, and with them the other end of the socket.
        command.stdin(Stdio::null());
        Ok((kid, ours))
    }

    /// Starts it with pipes for orders and answers, and reads its first line.
    pub(crate) fn with_pipes(command: &mut Command) -> Outcome<(Self, Talk, String)> {
        let mut kid = Self::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
        let orders = kid.child.stdin.take().expect("piped");
        let answers = BufReader::new(kid.child.stdout.take().expect("piped"));
        let mut talk = Talk { orders, answers };
        let first = talk.answer().map_err(|error| format!("{command:?}: {error}"))?;
        Ok((kid, talk, first))
    }

    /// Starts it with a stdin that ends when the kid is dropped, or when we die.
    pub(crate) fn with_open_stdin(command: &mut Command) -> Outcome<Self> {
        Self::start(command.stdin(Stdio::piped()))
    }

    /// For one that has daemons of its own to end, outside its group. Its orders must be dropped before it is.
    pub(crate) fn with_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Waits so long for its end; whether it came.
    pub(crate) fn ends_within(&self, time: Duration) -> Outcome<bool> {
        let pidfd = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty())?;
        let time = Timespec::try_from(time)?;
        Ok(poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&time))? > 0)
    }
}

impl Drop for Kid {
    fn drop(&mut self) {
        let _ = self.ends_within(self.grace);
        // Its group is ours to signal: we made it, and its leader is not waited for yet.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

/// Orders on stdin, an answer of one line each on stdout.
pub(crate) struct Talk {
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Talk {
    pub(crate) fn order(&mut self, order: &str) -> Outcome<String> {
        writeln!(self.orders, "{order}")?;
        self.answer()
    }

    fn answer(&mut self) -> Outcome<String> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            return Err("it ended before it answered".into());
        }
        Ok(line.trim_end().to_owned())
    }
}
