//! The host's half of the floor of a call: length-prefixed frames over a blocking socket, one at a time.
//!
//! `snakepit bench` and the benchmarks in `crates/bench` share this file, and each starts the other half ([`SCRIPT`])
//! in its own way. Therefore this file must not know how processes are started and needs only std.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The script that `python3 -c` runs at the other end. Its only argument is the descriptor of its socket.
pub(crate) const SCRIPT: &str = include_str!("raw_echo.py");

const PREFIX: usize = 4;

/// An echo at the other end of a socket.
pub(crate) struct RawEcho {
    stream: UnixStream,
    frame: Vec<u8>,
    answer: Vec<u8>,
}

impl RawEcho {
    pub(crate) fn over(stream: UnixStream) -> Self {
        Self { stream, frame: Vec::new(), answer: Vec::new() }
    }

    /// Sends `calls` calls of `bytes` bytes one after another and returns the time of each.
    pub(crate) fn calls(&mut self, bytes: usize, calls: usize) -> io::Result<Vec<Duration>> {
        self.frame.clear();
        self.frame.extend((bytes as u32).to_le_bytes());
        self.frame.resize(PREFIX + bytes, 0x5a);
        self.answer.resize(PREFIX + bytes, 0);
        (0..calls)
            .map(|_| {
                let began = Instant::now();
                self.call()?;
                Ok(began.elapsed())
            })
            .collect()
    }

    fn call(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.frame)?;
        self.stream.read_exact(&mut self.answer)?;
        if self.answer[..PREFIX] == self.frame[..PREFIX] {
            Ok(())
        } else {
            Err(io::Error::other("the echo is not as long as what was sent"))
        }
    }
}
