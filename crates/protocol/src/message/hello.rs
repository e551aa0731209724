//! HELLO: the host's first frame to a worker.

use serde::Serialize;

use crate::Outbox;
use crate::frame::FrameKind;
use crate::value::{Encoded, ValueError};

/// What a worker must know before its first call.
#[derive(Clone, Debug, Serialize)]
pub struct Hello<'a> {
    /// The version of the protocol.
    pub protocol: u32,
    /// The version of the engine.
    pub engine: &'a str,
    /// The name of the pool.
    pub pool: &'a str,
    /// The id of the worker.
    pub worker: &'a str,
    /// The number of calls that the worker may have at the same time.
    pub concurrency: usize,
    /// The maximum length of a frame.
    pub max_frame: usize,
    /// What this host understands beyond what every host does.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub features: &'a [&'a str],
}

impl Hello<'_> {
    /// Adds the frame.
    pub fn write(&self, outbox: &mut Outbox) -> Result<(), ValueError> {
        outbox.value_frame(FrameKind::Hello, 0, &Encoded::encode(self)?);
        Ok(())
    }
}
