//! A Python process of a floor or a peer. Dropping it kills its whole process group.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use snakepit_bench::BenchResult;

/// The same size as our sockets have: a megabyte then travels without a pause.
const SOCKET_BUFFER: usize = 4 << 20;

/// A process and the group that it leads.
pub(crate) struct PythonChild {
    child: Child,
    /// The time to exit after its stdin is closed.
    grace: Duration,
}

impl PythonChild {
    fn start(command: &mut Command) -> BenchResult<Self> {
        Ok(Self { child: command.process_group(0).spawn()?, grace: Duration::ZERO })
    }

    /// Starts the process with one end of a socket pair as descriptor 0, and returns the other end.
    pub(crate) fn with_socket(command: &mut Command) -> BenchResult<(Self, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        for end in [&ours, &theirs] {
            // Root may exceed the system's limit.
            if sockopt::set_socket_send_buffer_size_force(end, SOCKET_BUFFER).is_err() {
                sockopt::set_socket_send_buffer_size(end, SOCKET_BUFFER)?;
            }
            if sockopt::set_socket_recv_buffer_size_force(end, SOCKET_BUFFER).is_err() {
                sockopt::set_socket_recv_buffer_size(end, SOCKET_BUFFER)?;
            }
        }
        let child = Self::start(command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()))?;
        // A `Command` keeps its descriptors, and with them the child's end of the socket, until it is dropped.
        command.stdin(Stdio::null());
        Ok((child, ours))
    }

    /// Starts the process with pipes for orders and answers, and reads its first line.
    pub(crate) fn with_pipes(command: &mut Command) -> BenchResult<(Self, ChildPipes, String)> {
        let mut child = Self::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
        let orders = child.child.stdin.take().expect("piped");
        let answers = BufReader::new(child.child.stdout.take().expect("piped"));
        let mut pipes = ChildPipes { orders, answers };
        let first = pipes.answer().map_err(|error| format!("{command:?}: {error}"))?;
        Ok((child, pipes, first))
    }

    /// Starts the process with a stdin that closes when the child is dropped or this process dies.
    pub(crate) fn with_open_stdin(command: &mut Command) -> BenchResult<Self> {
        Self::start(command.stdin(Stdio::piped()))
    }

    /// Gives the child time to end daemons outside its group. Drop its pipes before the child.
    pub(crate) fn with_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Waits at most `time` for the child to exit, and returns whether it has exited.
    pub(crate) fn ends_within(&self, time: Duration) -> BenchResult<bool> {
        let pidfd = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty())?;
        let time = Timespec::try_from(time)?;
        Ok(poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&time))? > 0)
    }
}

impl Drop for PythonChild {
    fn drop(&mut self) {
        let _ = self.ends_within(self.grace);
        // Signalling the group is safe, because this process created it and has not reaped its leader yet.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

/// Sends orders to stdin, and reads an answer of one line each from stdout.
pub(crate) struct ChildPipes {
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl ChildPipes {
    pub(crate) fn order(&mut self, order: &str) -> BenchResult<String> {
        writeln!(self.orders, "{order}")?;
        self.answer()
    }

    fn answer(&mut self) -> BenchResult<String> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            return Err("it ended before it answered".into());
        }
        Ok(line.trim_end().to_owned())
    }
}
