//! CREDIT, CANCEL, DRAIN and FAULT: the short messages of a host.

use super::call::write_credit;
use crate::Outbox;
use crate::frame::FrameKind;
use crate::value::write;

/// A message of a host that carries no value of a caller.
#[derive(Clone, Copy, Debug)]
pub enum HostMessage<'a> {
    /// The caller takes so much more of a stream: items and bytes.
    Credit(u32, u64),
    /// A call is to be given up. Stage 1 asks, stage 2 interrupts.
    Cancel(u64),
    /// The worker is to finish what it has, and to take nothing new.
    Drain,
    /// What the worker did wrong.
    Fault(&'a str),
}

impl HostMessage<'_> {
    /// Adds the frame. `call` is 0 if the message is about no call.
    pub fn write(self, outbox: &mut Outbox, call: u64) {
        match self {
            Self::Credit(items, bytes) => {
                outbox.frame(FrameKind::Credit, call, |out| write_credit(out, items, bytes));
            }
            Self::Cancel(stage) => outbox.frame(FrameKind::Cancel, call, |out| write::uint(out, stage)),
            Self::Drain => outbox.frame(FrameKind::Drain, call, |_| {}),
            Self::Fault(text) => outbox.frame(FrameKind::Fault, call, |out| write::str(out, text)),
        }
    }
}
