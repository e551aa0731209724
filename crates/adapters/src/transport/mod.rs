//! Our own protocol (`spec/wire.md`) over a socket that the worker inherits.
//!
//! A frame's way: [`connection`] has the socket and the calls, and writes frames; [`reader`] reads frames and acts on them;
//! [`tools`] runs the tools that the worker calls; [`slate`] tells what a dead worker had begun; [`stacks`] asks a busy worker
//! where it is, [`beat`] whether its code can run.

mod beat;
mod closed;
mod connection;
mod hello;
mod log_text;
mod reader;
mod slate;
mod spans;
mod stacks;
mod task_stacks;
mod tools;

use snakepit_protocol::frame;

pub(crate) use beat::BeatPipe;
pub(crate) use closed::Closed;
pub(crate) use connection::Connection;
pub(crate) use hello::Hello;
#[cfg(feature = "grpc")]
pub(crate) use log_text::{beginning, log_text};
pub(crate) use reader::{ReadyMessage, ReadyOutcome, Signals};
pub(crate) use slate::Slate;
#[cfg(feature = "grpc")]
pub(crate) use spans::{read as read_span, read_trace};
#[cfg(feature = "grpc")]
pub(crate) use stacks::StackSignals;
pub(crate) use stacks::{StackPipe, take_crash};

/// What the fuzz targets need of this.
#[cfg(any(fuzzing, test))]
pub(crate) mod fuzzing {
    use bytes::BytesMut;

    use super::reader::cut;
    use crate::worker::Output;

    /// How many frames there are in bytes of a worker, or what is wrong with them.
    pub(crate) fn cut_frames(
        bytes: &mut BytesMut,
        output: &Output,
        max_frame: usize,
    ) -> Result<usize, String> {
        let mut frames = Vec::new();
        cut(bytes, &mut frames, output, max_frame).map(|()| frames.len())
    }
}
