//! Kills the process on demand at the steps of a message and of an evaluation, for tests: `SNAKEPIT_LOOP_FAULT=acked:3` kills it at the third ack.
//!
//! The crate `fail` is not used: it runs actions on names, and these tests need one step of an enum, counted over the whole process.

/// A step in the life of a message, or of an evaluation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoopFailpoint {
    /// Before a receive.
    Receive,
    /// After it, before the loop knows the messages.
    Received,
    /// Before the handler.
    Handle,
    /// After the handler, before anything is settled.
    Handled,
    /// Before a reply, which acknowledges.
    Reply,
    /// After a reply.
    Replied,
    /// Before an ack.
    Ack,
    /// After an ack.
    Acked,
    /// Before a message that failed goes back.
    Nack,
    /// After a message that failed went back.
    Nacked,
    /// Before a message becomes a dead letter.
    Bury,
    /// After a message became a dead letter.
    Buried,
    /// Before a lease is extended.
    Extend,
    /// After a lease was extended.
    Extended,
    /// Before messages that were not started, or were cancelled, go back.
    GiveBack,
    /// After these messages went back.
    GivenBack,

    /// Before a sample is run.
    Ask,
    /// The sample is answered and not judged.
    Answered,
    /// The sample is judged and not on record.
    Judged,
    /// The checkpoint is empty, and gets its first line.
    Head,
    /// Half of the first line is written.
    HeadTorn,
    /// Half of a record is written.
    RecordTorn,
    /// A record is written.
    Recorded,
    /// A reply is on record and not acknowledged.
    Noted,
    /// All is on record, and the report is not made.
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

    /// Whether the fault is due at this step.
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
        // The signal may take a moment to reach this thread, and nothing may happen meanwhile.
        loop {
            std::thread::park();
        }
    }
}
