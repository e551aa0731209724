//! The wire protocol (`spec/wire.md`) over a socket that the worker inherits.
//!
//! The files, in the order in which data passes them: [`connection`] holds the socket and the calls, and writes
//! frames; [`reader`] reads frames and handles them; [`tools`] runs the tools that the worker calls; [`slate`] knows
//! what a dead worker had begun; [`stacks`] asks a busy worker for its stacks, and [`heartbeat`] asks it to prove that its
//! code can run.

mod closed;
mod connection;
mod heartbeat;
mod log_text;
mod reader;
mod slate;
mod spans;
mod stacks;
mod task_stacks;
mod tools;

use snakepit_protocol::frame;

pub(crate) use closed::Closed;
pub(crate) use connection::Connection;
pub(crate) use heartbeat::BeatPipe;
#[cfg(feature = "grpc")]
pub(crate) use log_text::{beginning, log_text};
pub(crate) use reader::ReadyOutcome;
pub(crate) use slate::Slate;
#[cfg(feature = "grpc")]
pub(crate) use spans::{are_heard, event_of, read_trace};
pub(crate) use stacks::{StackPipe, StackSignals, take_crash};

/// Entry points for the fuzz targets.
#[cfg(any(fuzzing, test))]
pub(crate) mod fuzzing {
    use bytes::BytesMut;

    use super::reader::cut;
    use crate::adapter::ProtocolFault;
    use crate::worker::Output;

    /// Returns the number of frames in the bytes of a worker, or the first fault in them.
    pub(crate) fn cut_frames(
        bytes: &mut BytesMut,
        output: &Output,
        max_frame: usize,
    ) -> Result<usize, ProtocolFault> {
        let mut frames = Vec::new();
        cut(bytes, &mut frames, output, max_frame).map(|()| frames.len())
    }
}
