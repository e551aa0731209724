//! What shim and keeper say to each other: one message per packet.
//!
//! Both ends are forks of one process, so these have no version; nothing but std and the wire here, so that fuzz targets can
//! read this file by itself.

use crate::wire::{End, Put, Reach, Stage, Take};

/// Shim to keeper.
pub(crate) enum ShimSays {
    /// Said by the process itself: it waits at the gate. Descriptor: its pidfd.
    Born,
    Failed {
        stage: Stage,
        errno: i32,
    },
    Stopped {
        signal: i32,
    },
    Continued,
    /// The worker and all that it started are gone, but for those who were named.
    Ended(End),
    /// The end takes long, and goes on.
    Busy,
    /// A process of the worker belongs to another user by now, and is given up.
    Unkillable {
        pid: i32,
    },
}

impl ShimSays {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Put::default();
        match self {
            Self::Born => out.u8(1),
            Self::Failed { stage, errno } => out.u8(2).u8(*stage as u8).i32(*errno),
            Self::Stopped { signal } => out.u8(3).i32(*signal),
            Self::Continued => out.u8(4),
            Self::Ended(end) => end.put(out.u8(5)),
            Self::Busy => out.u8(6),
            Self::Unkillable { pid } => out.u8(7).i32(*pid),
        };
        out.0
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut take = Take(bytes);
        Some(match take.u8()? {
            1 => Self::Born,
            2 => Self::Failed { stage: Stage::from_byte(take.u8()?)?, errno: take.i32()? },
            3 => Self::Stopped { signal: take.i32()? },
            4 => Self::Continued,
            5 => Self::Ended(End::take(&mut take)?),
            6 => Self::Busy,
            7 => Self::Unkillable { pid: take.i32()? },
            _ => return None,
        })
    }
}

/// Keeper to shim.
pub(crate) enum ShimHears {
    Signal { signal: i32, reach: Reach },
    Kill,
}

impl ShimHears {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Put::default();
        match self {
            Self::Signal { signal, reach } => out.u8(1).i32(*signal).u8(*reach as u8),
            Self::Kill => out.u8(2),
        };
        out.0
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut take = Take(bytes);
        Some(match take.u8()? {
            1 => Self::Signal {
                signal: take.i32()?,
                reach: if take.u8()? == Reach::Group as u8 { Reach::Group } else { Reach::Process },
            },
            2 => Self::Kill,
            _ => return None,
        })
    }
}
