//! The header of a frame, and the kinds of frames.

use bytes::{Buf, BufMut};

/// The protocol version in every header.
pub const VERSION: u8 = 1;
/// The size of a header in bytes.
pub const HEADER: usize = 16;
/// Header flag: the payload has bodies.
const BODIES: u16 = 1;
/// Header flag of RESULTS: more results follow in another frame.
const MORE: u16 = 2;
/// The maximum length of READY, from spec/wire.md.
const READY: usize = 1024 * 1024;
/// The maximum length of a control frame, from spec/wire.md.
const CONTROL: usize = 64 * 1024;

macro_rules! kinds {
    ($($name:ident = $number:literal $(at most $limit:ident)?: $what:literal,)*) => {
        /// The kind of a frame.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum FrameKind {
            $(#[doc = $what] $name = $number,)*
        }

        impl FrameKind {
            /// Returns the kind with this number, or `None` if this version of the protocol has no such kind.
            pub fn from_number(number: u8) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// Returns the length limit of this kind, which applies whatever `max_frame` is.
            fn own_limit(self) -> Option<usize> {
                match self {
                    $(Self::$name => kinds!(@limit $($limit)?),)*
                }
            }
        }
    };
    (@limit) => { None };
    (@limit $limit:ident) => { Some($limit) };
}

// Frames that carry no value of a caller are short. Logs, progress and telemetry have no limit here: if they are too
// long, they are cut or ignored, which is not a fault.
kinds! {
    Hello = 1: "The host's first frame: what it offers.",
    Ready = 2 at most READY: "The worker's first frame: it serves.",
    Call = 3: "One call.",
    Result = 4: "The value of a call.",
    Error = 5: "The error of a call.",
    Item = 6: "One value of a stream.",
    End = 7 at most CONTROL: "A stream is complete.",
    Credit = 8: "The caller takes so much more of a stream.",
    Cancel = 9: "A call is to be given up.",
    HostCall = 10: "The worker calls a tool of the host.",
    HostResult = 11: "The value of a tool.",
    HostError = 12: "The error of a tool.",
    HostItem = 13: "One value of a tool's stream.",
    HostEnd = 14: "A tool's stream is complete.",
    HostCredit = 15 at most CONTROL: "The worker takes so much more of a tool's stream.",
    HostCancel = 16 at most CONTROL: "The worker gives a tool up.",
    Log = 17: "A line of a log.",
    Progress = 18: "How far a call is.",
    Ping = 19: "The host asks for a sign of life.",
    Pong = 20 at most CONTROL: "The sign of life.",
    Telemetry = 21: "A span of the worker's code.",
    Drain = 22: "The worker is to end what it has and take nothing new.",
    Bye = 23 at most CONTROL: "The worker leaves.",
    Calls = 24: "Many calls of one command.",
    Results = 25: "Outcomes of many calls.",
    Fault = 26 at most CONTROL: "What the other side did wrong; then the sender closes the socket.",
    Items = 27: "Several values of a stream.",
}

/// A frame's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The number of bytes after the header.
    pub length: usize,
    /// The kind of the frame.
    pub kind: FrameKind,
    /// Whether byte strings follow the value.
    pub has_bodies: bool,
    /// Whether the answer continues in another frame.
    pub has_more: bool,
    /// The call that the frame belongs to, or 0 if it belongs to none.
    pub call: u64,
}

/// The reason why a header is rejected.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the texts of the errors say it")]
pub enum BadHeader {
    #[error("it sent a frame of version {0}, and this engine speaks version {VERSION}")]
    Version(u8),
    #[error("it sent a frame of the unknown kind {0}")]
    Kind(u8),
    #[error("it sent a frame with unknown flags {0:#06x}")]
    Flags(u16),
    #[error("it sent a frame of {length} bytes, and max_frame is {limit}")]
    TooLong { length: usize, limit: usize },
    #[error(
        "it sent a frame of kind {kind:?} that is {length} bytes long, and {limit} is the most for that kind"
    )]
    TooLongForItsKind { kind: FrameKind, length: usize, limit: usize },
}

impl Header {
    /// Reads a header from the start of the received bytes. Returns `None` if the header is still incomplete.
    #[inline]
    pub fn peek(mut bytes: &[u8], limit: usize) -> Result<Option<Self>, BadHeader> {
        if bytes.len() < HEADER {
            return Ok(None);
        }
        let length = bytes.get_u32_le() as usize;
        let version = bytes.get_u8();
        let kind = bytes.get_u8();
        let flags = bytes.get_u16_le();
        let call = bytes.get_u64_le();
        if version != VERSION {
            return Err(BadHeader::Version(version));
        }
        let kind = FrameKind::from_number(kind).ok_or(BadHeader::Kind(kind))?;
        let known = if kind == FrameKind::Results { BODIES | MORE } else { BODIES };
        if flags & !known != 0 {
            return Err(BadHeader::Flags(flags));
        }
        if length > limit {
            return Err(BadHeader::TooLong { length, limit });
        }
        if let Some(limit) = kind.own_limit().filter(|limit| length > *limit) {
            return Err(BadHeader::TooLongForItsKind { kind, length, limit });
        }
        Ok(Some(Self { length, kind, has_bodies: flags & BODIES != 0, has_more: flags & MORE != 0, call }))
    }

    /// Appends the header to `out`.
    #[inline]
    pub fn write_to(self, out: &mut Vec<u8>) {
        out.put_u32_le(self.length as u32);
        out.put_u8(VERSION);
        out.put_u8(self.kind as u8);
        let bodies = if self.has_bodies { BODIES } else { 0 };
        out.put_u16_le(if self.has_more { bodies | MORE } else { bodies });
        out.put_u64_le(self.call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let header =
            Header { length: 7, kind: FrameKind::Results, has_bodies: true, has_more: true, call: u64::MAX };
        let mut bytes = Vec::new();
        header.write_to(&mut bytes);
        assert_eq!(bytes.len(), HEADER);
        assert_eq!(Header::peek(&bytes, 7), Ok(Some(header)));
        assert_eq!(Header::peek(&bytes[..15], 7), Ok(None));
        assert_eq!(Header::peek(&bytes, 6), Err(BadHeader::TooLong { length: 7, limit: 6 }));
    }

    #[test]
    fn frames_that_carry_no_value_are_short_whatever_max_frame_is() {
        let peek = |kind: FrameKind, length: usize| {
            let mut bytes = Vec::new();
            Header { length, kind, has_bodies: false, has_more: false, call: 0 }.write_to(&mut bytes);
            Header::peek(&bytes, 256 << 20)
        };
        for (kind, limit) in
            [(FrameKind::Ready, READY), (FrameKind::Fault, CONTROL), (FrameKind::HostCredit, CONTROL)]
        {
            assert!(peek(kind, limit).is_ok());
            let length = limit + 1;
            assert_eq!(peek(kind, length), Err(BadHeader::TooLongForItsKind { kind, length, limit }));
        }
        assert!(peek(FrameKind::Result, 256 << 20).is_ok());
    }

    #[test]
    fn an_unknown_version_kind_or_flag_is_rejected_by_name() {
        let frame = |version: u8, kind: u8, flags: u16| {
            let mut bytes = Vec::new();
            bytes.put_u32_le(0);
            bytes.put_u8(version);
            bytes.put_u8(kind);
            bytes.put_u16_le(flags);
            bytes.put_u64_le(0);
            Header::peek(&bytes, 100)
        };
        assert_eq!(frame(2, 3, 0), Err(BadHeader::Version(2)));
        assert_eq!(frame(1, 0, 0), Err(BadHeader::Kind(0)));
        assert_eq!(frame(1, 28, 0), Err(BadHeader::Kind(28)));
        assert_eq!(frame(1, 3, 2), Err(BadHeader::Flags(2)), "only RESULTS go on");
        assert_eq!(frame(1, 25, 4), Err(BadHeader::Flags(4)));
    }
}
