//! Ends on demand at the steps of a message and of an evaluation, for tests: `SNAKEPIT_LOOP_FAULT=acked:3` kills the process
//! when it gets there for the third time.

/// Where in the life of a message, or of an evaluation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(not(feature = "evals"), expect(dead_code, reason = "half of them are an evaluation's"))]
pub(crate) enum Step {
    /// Before a receive.
    Receive,
    /// After it, before anybody has heard of the messages.
    Received,
    /// Before the handler.
    Handle,
    /// After the handler, before anything is settled.
    Handled,
    /// Before a reply, which acknowledges.
    Reply,
    /// After it.
    Replied,
    /// Before an ack.
    Ack,
    /// After it.
    Acked,
    /// Before a message that failed goes back.
    Nack,
    /// After that.
    Nacked,
    /// Before a message becomes a dead letter.
    Bury,
    /// After that.
    Buried,
    /// Before a lease is extended.
    Extend,
    /// After that.
    Extended,
    /// Before what was not started, or was cancelled, goes back.
    GiveBack,
    /// After that.
    GivenBack,

    /// Before a sample is asked.
    Ask,
    /// It was answered, and not judged.
    Answered,
    /// It was judged, and is not on record.
    Judged,
    /// The checkpoint is empty, and gets its first line.
    Head,
    /// Half of the first line is written.
    HeadTorn,
    /// Half of a record is written.
    RecordTorn,
    /// A record is written.
    Recorded,
    /// A reply is on record, and not acknowledged.
    Noted,
    /// All is on record, and nobody has heard of it.
    Report,
}

/// Ends the process if it was told to end here.
#[inline]
pub(crate) fn reach(step: Step) {
    if is_due(step) {
        end();
    }
}

#[cfg(not(feature = "failpoints"))]
#[inline]
pub(crate) fn is_due(_: Step) -> bool {
    false
}

#[cfg(not(feature = "failpoints"))]
#[inline]
pub(crate) fn end() {}

#[cfg(feature = "failpoints")]
pub(crate) use armed::{end, is_due};

#[cfg(feature = "failpoints")]
mod armed {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    use rustix::process::{Signal, getpid, kill_process};

    use super::Step;

    struct Fault {
        step: String,
        at: u64,
    }

    fn fault() -> Option<&'static Fault> {
        static FAULT: OnceLock<Option<Fault>> = OnceLock::new();
        let read = || {
            let text = std::env::var("SNAKEPIT_LOOP_FAULT").ok()?;
            let (step, at) = text.split_once(':')?;
            Some(Fault { step: step.to_owned(), at: at.parse().ok()? })
        };
        FAULT.get_or_init(read).as_ref()
    }

    /// Whether the process is to end here, now.
    pub(crate) fn is_due(step: Step) -> bool {
        static REACHED: AtomicU64 = AtomicU64::new(0);
        let Some(fault) = fault() else { return false };
        let is_here = fault.step == format!("{step:?}").to_lowercase();
        is_here && REACHED.fetch_add(1, Ordering::Relaxed) + 1 == fault.at
    }

    /// Ends the process as the kernel does for want of memory.
    #[expect(clippy::disallowed_methods, reason = "its own pid cannot be another's")]
    pub(crate) fn end() -> ! {
        let _ = kill_process(getpid(), Signal::KILL);
        // The signal may take a moment to reach this thread, and nothing more may happen.
        loop {
            std::thread::park();
        }
    }
}
