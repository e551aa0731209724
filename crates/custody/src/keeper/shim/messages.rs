//! The messages between shim and keeper. Each packet carries one message.
//!
//! Both ends are forks of one process, so the format has no version. The file uses only std and the wire module, so
//! fuzz targets can compile it on its own.

use crate::wire::{MessageReader, MessageWriter, SignalReach, SpawnStage, WorkerEnd};

/// A message from a shim to the keeper.
pub(crate) enum FromShim {
    /// The process itself waits at the gate and sends this message. Descriptor: its pidfd.
    AtGate,
    Failed {
        stage: SpawnStage,
        errno: i32,
    },
    Stopped {
        signal: i32,
    },
    Continued,
    /// The worker and everything that it started are gone, except processes that were reported as unkillable.
    Ended(WorkerEnd),
    /// The end takes long and is in progress.
    Busy,
    /// A process of the worker now belongs to another user and is left alone.
    Unkillable {
        pid: i32,
    },
}

impl FromShim {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = MessageWriter::default();
        match self {
            Self::AtGate => out.u8(1),
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
        let mut take = MessageReader(bytes);
        Some(match take.u8()? {
            1 => Self::AtGate,
            2 => Self::Failed { stage: SpawnStage::from_byte(take.u8()?)?, errno: take.i32()? },
            3 => Self::Stopped { signal: take.i32()? },
            4 => Self::Continued,
            5 => Self::Ended(WorkerEnd::take(&mut take)?),
            6 => Self::Busy,
            7 => Self::Unkillable { pid: take.i32()? },
            _ => return None,
        })
    }
}

/// A message from the keeper to a shim.
pub(crate) enum ToShim {
    Signal { signal: i32, reach: SignalReach },
    Kill,
}

impl ToShim {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = MessageWriter::default();
        match self {
            Self::Signal { signal, reach } => out.u8(1).i32(*signal).u8(*reach as u8),
            Self::Kill => out.u8(2),
        };
        out.0
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut take = MessageReader(bytes);
        Some(match take.u8()? {
            1 => Self::Signal {
                signal: take.i32()?,
                reach: if take.u8()? == SignalReach::Group as u8 {
                    SignalReach::Group
                } else {
                    SignalReach::Process
                },
            },
            2 => Self::Kill,
            _ => return None,
        })
    }
}
