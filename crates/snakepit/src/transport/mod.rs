//! Our own protocol (`spec/wire.md`) over a socket that the worker inherits.
//!
//! A frame's way: [`frame`] is the header, [`messages`] what stands behind it, [`outbox`] gathers what is to be written,
//! [`connection`] has the socket and the calls, [`incoming`] reads what a frame says, [`reader`] acts on it; [`tools`] runs what the worker asks of the host,
//! [`stacks`] asks a busy worker where it is, [`beat`] whether its code can run.

mod beat;
mod by_number;
mod closed;
mod connection;
mod frame;
mod incoming;
mod log_text;
mod messages;
mod outbox;
mod reader;
mod slate;
mod spans;
mod stacks;
mod task_stacks;
mod tools;

pub(crate) use beat::BeatPipe;
#[cfg(any(feature = "grpc", feature = "http", feature = "stdio"))]
pub(crate) use closed::Closed;
pub(crate) use connection::{Connection, LastWord, Ready};
#[cfg(feature = "grpc")]
pub(crate) use log_text::{beginning, log_text};
pub(crate) use messages::{Hello, ReadyMessage, Signals};
pub(crate) use slate::Slate;
#[cfg(feature = "grpc")]
pub(crate) use spans::read as read_span;
#[cfg(feature = "grpc")]
pub(crate) use stacks::StackSignals;
pub(crate) use stacks::{StackPipe, take_crash};
#[cfg(feature = "grpc")]
pub(crate) use tools::{Credit, Run as ToolRun, Tools as ToolRuns};

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
