//! The messages between shim and keeper. Each packet carries one message.
//!
//! Both ends are forks of one process, so the format has no version. The file uses only std and the wire module, which
//! defines `messages!`, so fuzz targets can compile it on its own.

use crate::wire::{MessageField, MessageReader, MessageWriter, SignalReach, SpawnStage, WorkerEnd};

messages! {
    /// A message from a shim to the keeper.
    enum FromShim {
        /// The process itself waits at the gate and sends this message. Descriptor: its pidfd.
        1 = AtGate,
        2 = Failed { stage: SpawnStage, errno: i32 },
        3 = Stopped { signal: i32 },
        4 = Continued,
        /// The worker and everything that it started are gone, except processes that were reported as unkillable.
        5 = Ended { end: WorkerEnd },
        /// The end takes long and is in progress.
        6 = Busy,
        /// A process of the worker now belongs to another user and is left alone.
        7 = Unkillable { pid: i32 },
    }

    /// A message from the keeper to a shim.
    enum ToShim {
        1 = Signal { signal: i32, reach: SignalReach },
        2 = Kill,
    }
}
