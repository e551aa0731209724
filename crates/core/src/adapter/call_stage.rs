//! How far a call has come at its worker, and what becomes of it when the worker ends.

/// How far a call has come at its worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallStage {
    /// The worker cannot know of it.
    Unsent,
    /// The worker was sent it, and may begin it at any time.
    Sent,
    /// The worker has begun it.
    Started,
    /// Its outcome is known, but the worker is not done with it.
    GivenUp,
}

/// Whether `HeldCalls::started` was told of every call that the worker has begun, and will begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Starts {
    /// All of them: the worker tells what it begins, or the host sees what the worker reads. At the worker's end this holds only if
    /// its process is gone, since a live process may begin what it was sent.
    Known,
    /// Not all: the worker may have begun whatever it was sent.
    Unknown,
}

/// What becomes of a call when its worker ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtEnd {
    /// Another worker gets it: this one has surely not begun it.
    GiveBack,
    /// It fails with its worker's end.
    Lose,
    /// It is answered with what `HeldCalls::give_up` was told.
    Conclude,
}

impl CallStage {
    /// What becomes of a call in this stage when its worker ends.
    pub fn at_end(self, starts: Starts) -> AtEnd {
        match (self, starts) {
            (Self::Unsent, Starts::Known | Starts::Unknown) | (Self::Sent, Starts::Known) => AtEnd::GiveBack,
            (Self::Sent, Starts::Unknown) | (Self::Started, Starts::Known | Starts::Unknown) => AtEnd::Lose,
            (Self::GivenUp, Starts::Known | Starts::Unknown) => AtEnd::Conclude,
        }
    }
}
