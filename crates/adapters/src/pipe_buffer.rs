//! The room in a pipe between host and worker.
//!
//! A pipe has room for 64 KiB, so a long line would pass it in many steps, each with a change from one process to the
//! other. A pipe is made larger when the first long line passes it, and not before: each user of the system may have
//! only so much memory in pipes (`pipe-user-pages-soft`), and most workers never send a long line.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// The room in a pipe from the start.
#[cfg_attr(
    not(any(feature = "stdio", all(test, target_os = "linux"))),
    expect(dead_code, reason = "only stdio workers are sent lines")
)]
pub(super) const USUAL_ROOM: usize = 64 * 1024;
/// The room for long lines. A pipe of a megabyte takes twice as much of a user's memory, and is hardly faster.
const LARGE_ROOM: usize = 512 * 1024;

/// Whether a pipe was made larger.
#[derive(Debug, Default)]
pub(super) struct PipeBuffer {
    is_large: AtomicBool,
}

impl PipeBuffer {
    /// Makes the pipe larger, once. Where the system refuses, the pipe works as it is.
    pub(super) fn make_large(&self, pipe: impl AsFd) {
        if self.is_large.swap(true, Ordering::Relaxed) {
            return;
        }
        #[cfg(target_os = "linux")]
        let _ = rustix::pipe::fcntl_setpipe_size(pipe, LARGE_ROOM);
        #[cfg(not(target_os = "linux"))]
        let _ = (pipe, LARGE_ROOM);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_made_larger_once() {
        let (reader, _writer) = std::io::pipe().expect("a pipe");
        let size = || rustix::pipe::fcntl_getpipe_size(&reader).expect("a size");
        let room = PipeBuffer::default();
        assert_eq!(size(), USUAL_ROOM);
        room.make_large(&reader);
        assert_eq!(size(), LARGE_ROOM);
        rustix::pipe::fcntl_setpipe_size(&reader, USUAL_ROOM).expect("a smaller pipe");
        room.make_large(&reader);
        assert_eq!(size(), USUAL_ROOM);
    }
}
