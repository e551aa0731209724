//! What a worker sends, by the kinds of its frames.

use super::{HostCall, ReadyMessage, WorkerSpan};
use crate::frame::FrameKind;
use crate::value::{Encoded, EncodedItems, ValueError};

/// The maximum decoded size of a frame about the worker itself.
const MEMORY: usize = 16 << 20;
/// The maximum decoded size of a small frame: numbers and a text.
pub(super) const LITTLE: usize = 4096;
/// The maximum length of a progress text. The rest is cut off.
pub const PROGRESS_TEXT: usize = 8 * 1024;

/// A message of a worker. Values of callers are not decoded.
#[derive(Debug)]
pub enum WorkerMessage {
    /// READY: the worker can serve.
    Ready(Box<ReadyMessage>),
    /// RESULT: the value of a call.
    Result(Encoded),
    /// ERROR: the error of a call, or of the start.
    Error(Encoded),
    /// ITEM or ITEMS: values of a stream.
    Items(EncodedItems),
    /// END: a stream is complete.
    End,
    /// `HOST_CALL`: the worker calls a tool.
    HostCall(Box<HostCall>),
    /// `HOST_CREDIT`: the worker takes more of a tool's stream: id, items and bytes.
    HostCredit((u64, u32, u64)),
    /// `HOST_CANCEL`: the worker gives up the tool call with this id.
    HostCancel((u64,)),
    /// LOG: level, text and fields.
    Log((String, String, Encoded)),
    /// PROGRESS: the fraction that is done, and a text.
    Progress(Option<f64>, Option<String>),
    /// PONG, which answers a PING.
    Pong,
    /// TELEMETRY. `None` if it is no span, or an invalid one.
    Telemetry(Option<Box<WorkerSpan>>),
    /// BYE: the last frame.
    Bye,
    /// RESULTS: an entry for each call, [`Encoded::flagged`]: `[true, value]` or `[false, error]`.
    Results(Encoded),
    /// FAULT: what the host did wrong.
    Fault(String),
}

impl WorkerMessage {
    /// Decodes the payload of a frame. Returns `None` if only a host sends frames of this kind.
    #[inline]
    pub fn decode(kind: FrameKind, payload: Encoded) -> Result<Option<Self>, ValueError> {
        Ok(Some(match kind {
            FrameKind::Ready => Self::Ready(payload.decode_within(MEMORY)?),
            FrameKind::Result => Self::Result(payload),
            FrameKind::Error => Self::Error(payload),
            FrameKind::Item => Self::Items(EncodedItems::one(payload)),
            FrameKind::Items => Self::Items(EncodedItems::list(payload)?),
            FrameKind::End => Self::End,
            FrameKind::HostCall => Self::HostCall(Box::new(HostCall::decode(&payload)?)),
            FrameKind::HostCredit => Self::HostCredit(payload.decode_within(LITTLE)?),
            FrameKind::HostCancel => Self::HostCancel(payload.decode_within(LITTLE)?),
            FrameKind::Log => Self::Log(payload.decode_within(LITTLE)?),
            FrameKind::Progress => {
                let (fraction, text): (_, Option<String>) = payload.decode_within(LITTLE)?;
                // A copy, so that the memory of a long text is not kept.
                let cut = |text: String| text[..text.floor_char_boundary(PROGRESS_TEXT)].to_owned();
                Self::Progress(fraction, text.map(cut))
            }
            FrameKind::Pong => Self::Pong,
            FrameKind::Telemetry => Self::Telemetry(WorkerSpan::decode(&payload)),
            FrameKind::Bye => Self::Bye,
            FrameKind::Results => Self::Results(payload),
            FrameKind::Fault => Self::Fault(payload.decode_within(LITTLE)?),
            FrameKind::Hello
            | FrameKind::Call
            | FrameKind::Calls
            | FrameKind::Credit
            | FrameKind::Cancel
            | FrameKind::Ping
            | FrameKind::Drain
            | FrameKind::HostResult
            | FrameKind::HostError
            | FrameKind::HostItem
            | FrameKind::HostEnd => return Ok(None),
        }))
    }
}
