//! `HOST_CALL`: a worker calls a tool of the host. And the frames that answer it.

use serde::Deserialize;

use super::worker_message::LITTLE;
use super::{RemoteError, TraceTexts};
use crate::frame::FrameKind;
use crate::value::{Encoded, ValueBuilder, ValueError, write};

/// A `HOST_CALL`.
#[derive(Debug)]
pub struct HostCall {
    /// What the worker calls it, in all frames about it.
    pub id: u64,
    /// The name of the tool.
    pub tool: String,
    /// The arguments.
    pub args: Encoded,
    /// What few tool calls have.
    pub options: HostCallOptions,
}

/// The options of a `HOST_CALL`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct HostCallOptions {
    /// The first credit of a stream: items and bytes.
    pub stream: Option<(u32, u64)>,
    trace: Option<Vec<String>>,
}

impl HostCallOptions {
    /// Returns the trace that the tool call belongs to.
    pub fn trace(&self) -> Option<TraceTexts<'_>> {
        TraceTexts::of_list(self.trace.as_deref()?)
    }
}

impl HostCall {
    /// Decodes a `HOST_CALL`, with or without options.
    pub(super) fn decode(payload: &Encoded) -> Result<Self, ValueError> {
        type WithOptions = (u64, String, Encoded, HostCallOptions);
        if let Ok((id, tool, args, options)) = payload.decode_within::<WithOptions>(LITTLE) {
            return Ok(Self { id, tool, args, options });
        }
        let (id, tool, args) = payload.decode_within(LITTLE)?;
        Ok(Self { id, tool, args, options: HostCallOptions::default() })
    }
}

/// An answer of a tool, or a part of it.
#[derive(Debug)]
pub enum ToolReply {
    /// The whole answer.
    Value(Encoded),
    /// One item of a stream.
    Item(Encoded),
    /// The end of a stream.
    End,
    /// The tool failed.
    Error(RemoteError),
}

impl ToolReply {
    /// Encodes the payload `[id, value]`, or `[id]` for the end of a stream. Returns it with the kind of its frame.
    pub fn encode(&self, id: u64) -> Result<(FrameKind, Encoded), ValueError> {
        let mut builder = ValueBuilder::default();
        write::array_header(&mut builder.head, if let Self::End = self { 1 } else { 2 });
        write::uint(&mut builder.head, id);
        let kind = match self {
            Self::Value(value) => builder.encoded(value).map(|()| FrameKind::HostResult),
            Self::Item(item) => builder.encoded(item).map(|()| FrameKind::HostItem),
            Self::End => Ok(FrameKind::HostEnd),
            Self::Error(error) => builder.inner_value(error).map(|()| FrameKind::HostError),
        }?;
        Ok((kind, builder.finish()))
    }
}
