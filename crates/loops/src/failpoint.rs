//! Kills the process on demand at a step of a message or of an evaluation, for tests. `SNAKEPIT_LOOP_FAULT=acked:3`
//! kills it at the third ack.
//!
//! The crate `fail` does not fit: it runs actions by name, and these tests need a step of an enum, counted over the
//! whole process.

/// A step of a message or of an evaluation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoopFailpoint {
    /// Before a receive.
    Receive,
    /// After a receive, before the loop records the messages.
    Received,
    /// Before the handler runs.
    Handle,
    /// After the handler, before anything is settled.
    Handled,
    /// Before a reply, which also acknowledges.
    Reply,
    /// After a reply.
    Replied,
    /// Before an ack.
    Ack,
    /// After an ack.
    Acked,
    /// Before a failed message goes back.
    Nack,
    /// After a failed message went back.
    Nacked,
    /// Before a message becomes a dead letter.
    Bury,
    /// After a message became a dead letter.
    Buried,
    /// Before a lease is extended.
    Extend,
    /// After a lease was extended.
    Extended,
    /// Before messages that were not started or were cancelled go back.
    GiveBack,
    /// After these messages went back.
    GivenBack,

    /// Before a sample runs.
    Ask,
    /// The sample is answered but not judged.
    Answered,
    /// The sample is judged but not recorded.
    Judged,
    /// The checkpoint is empty, and its first line comes next.
    Head,
    /// Half of the first line is written.
    HeadTorn,
    /// Half of a record is written.
    RecordTorn,
    /// A record is written.
    Recorded,
    /// A reply is recorded but not acknowledged.
    Noted,
    /// Everything is recorded, but the report does not exist yet.
    Report,
}

/// Kills the process if the fault is due at this step.
#[inline]
pub fn reach(step: LoopFailpoint) {
    if is_due(step) {
        end();
    }
}

#[cfg(not(feature = "failpoints"))]
#[inline]
pub fn is_due(_: LoopFailpoint) -> bool {
    false
}

#[cfg(not(feature = "failpoints"))]
#[inline]
pub fn end() {}

#[cfg(feature = "failpoints")]
pub use armed::{end, is_due};

#[cfg(feature = "failpoints")]
mod armed {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    use rustix::process::{Signal, getpid, kill_process};

    use super::LoopFailpoint;

    struct ArmedLoopFault {
        step: String,
        at: u64,
    }

    fn fault() -> Option<&'static ArmedLoopFault> {
        static FAULT: OnceLock<Option<ArmedLoopFault>> = OnceLock::new();
        let read = || {
            let text = std::env::var("SNAKEPIT_LOOP_FAULT").ok()?;
            let (step, at) = text.split_once(':')?;
            Some(ArmedLoopFault { step: step.to_owned(), at: at.parse().ok()? })
        };
        FAULT.get_or_init(read).as_ref()
    }

    /// Reports whether the fault is due at this step.
    pub fn is_due(step: LoopFailpoint) -> bool {
        static REACHED: AtomicU64 = AtomicU64::new(0);
        let Some(fault) = fault() else { return false };
        let is_here = fault.step == format!("{step:?}").to_lowercase();
        is_here && REACHED.fetch_add(1, Ordering::Relaxed) + 1 == fault.at
    }

    /// Kills the process as the kernel does when memory runs out.
    #[expect(clippy::disallowed_methods, reason = "the pid is this process's own")]
    pub fn end() -> ! {
        let _ = kill_process(getpid(), Signal::KILL);
        // The signal may take a moment to arrive, and this thread must do nothing meanwhile.
        loop {
            std::thread::park();
        }
    }
}
