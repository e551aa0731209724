//! The progress of a call at its worker, and what happens to the call when the worker ends.

/// The progress of a call at its worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallStage {
    /// The worker cannot know of the call.
    Unsent,
    /// The call was sent to the worker, which may begin it at any time.
    Sent,
    /// The worker has begun the call.
    Started,
    /// The outcome of the call is known, but the worker has not finished with it.
    GivenUp,
}

/// Whether the adapter has reported to `HeldCalls::started` every call that the worker has begun or will begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StartKnowledge {
    /// All of them, because the worker announces what it begins, or because the host sees what the worker reads. When
    /// the worker ends, this holds only if its process is gone: a live process may still begin what it was sent.
    Known,
    /// Not all of them: the worker may have begun any call that it was sent.
    Unknown,
}

/// What happens to a call when its worker ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallSettlement {
    /// Another worker gets the call, because this one has certainly not begun it.
    GiveBack,
    /// The call fails because its worker ended.
    Lose,
    /// The call is answered with the outcome that was passed to `HeldCalls::give_up`.
    Conclude,
}

impl CallStage {
    /// Returns what happens to a call in this stage when its worker ends.
    pub fn at_end(self, starts: StartKnowledge) -> CallSettlement {
        match (self, starts) {
            (Self::Unsent, StartKnowledge::Known | StartKnowledge::Unknown)
            | (Self::Sent, StartKnowledge::Known) => CallSettlement::GiveBack,
            (Self::Sent, StartKnowledge::Unknown)
            | (Self::Started, StartKnowledge::Known | StartKnowledge::Unknown) => CallSettlement::Lose,
            (Self::GivenUp, StartKnowledge::Known | StartKnowledge::Unknown) => CallSettlement::Conclude,
        }
    }
}
