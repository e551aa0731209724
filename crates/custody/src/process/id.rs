//! The ids of runs, workers, processes and groups, and their limits.

use std::fmt;
use std::str::FromStr;

/// The id of a run: a time-ordered UUID, written as 32 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(uuid::Uuid);

impl RunId {
    pub(crate) fn new() -> Self {
        // uuid's own clock panics before 1970, and the clock of a machine without a battery may start there.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let context = uuid::NoContext;
        Self(uuid::Uuid::new_v7(uuid::Timestamp::from_unix(context, now.as_secs(), now.subsec_nanos())))
    }

    pub(crate) fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_simple().fmt(f)
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunId({self})")
    }
}

impl FromStr for RunId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let id = uuid::Uuid::try_parse(text).map(Self).map_err(|_| InvalidId::Run(text.to_owned()))?;
        // Accept only the canonical spelling, so that one run has one directory name.
        if id.to_string() == text { Ok(id) } else { Err(InvalidId::Run(text.to_owned())) }
    }
}

/// A worker's name within its run, such as `python/3`. The worker gets it as `SNAKEPIT_WORKER_ID`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct WorkerId(String);

impl WorkerId {
    /// The length of the longest name that fits into a ledger record.
    pub const MAX_LEN: usize = 64;

    /// Creates a name of 1 to 64 characters from `A-Z a-z 0-9 . _ : / -`.
    ///
    /// ```
    /// use snakepit_custody::WorkerId;
    ///
    /// assert_eq!(WorkerId::new("python/3")?.as_str(), "python/3");
    /// assert!(WorkerId::new("no spaces").is_err());
    /// # Ok::<(), snakepit_custody::InvalidId>(())
    /// ```
    pub fn new(name: impl Into<String>) -> Result<Self, InvalidId> {
        let name = name.into();
        let fits = (1..=Self::MAX_LEN).contains(&name.len());
        if fits && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:/-".contains(&b)) {
            Ok(Self(name))
        } else {
            Err(InvalidId::Worker(name))
        }
    }

    /// Returns the name of the n-th worker of a run, for a command without a name.
    pub(crate) fn numbered(number: u64) -> Self {
        Self(format!("w{number}"))
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The reason why a text is not an id.
#[derive(Debug, thiserror::Error)]
pub enum InvalidId {
    /// The text is not a run id.
    #[error("{0:?} is not a run id: use 32 lower-case hex digits, as `snakepit ledger` prints them")]
    Run(String),
    /// The text is not a worker id.
    #[error("{0:?} is not a worker id: use 1 to 64 characters from A-Z a-z 0-9 . _ : / -")]
    Worker(String),
}

/// A process id: always positive.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pid(rustix::process::Pid);

impl Pid {
    /// Creates a pid. Returns `None` for zero and negative numbers.
    pub fn new(raw: i32) -> Option<Self> {
        if raw > 0 { rustix::process::Pid::from_raw(raw).map(Self) } else { None }
    }

    /// Returns the pid of the calling process.
    pub fn current() -> Self {
        Self(rustix::process::getpid())
    }

    /// Returns the number.
    pub fn as_raw(self) -> i32 {
        self.0.as_raw_nonzero().get()
    }

    pub(crate) fn as_rustix(self) -> rustix::process::Pid {
        self.0
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_raw().fmt(f)
    }
}

impl fmt::Debug for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pid({self})")
    }
}

/// A process group that custody created: never 0, never 1, never the caller's own group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pgid(Pid);

impl Pgid {
    /// Creates a group id. Returns `None` for a group that must never be signalled: 0, 1, and the caller's own group.
    pub fn new(raw: i32) -> Option<Self> {
        let pid = Pid::new(raw)?;
        // SAFETY: no precondition. rustix is not used: in a PID namespace whose first process came from outside, the
        // caller's group has no number and the call returns 0, which rustix cannot express.
        let own = unsafe { libc::getpgrp() };
        (raw > 1 && raw != own).then_some(Self(pid))
    }

    /// Returns the number.
    pub fn as_raw(self) -> i32 {
        self.0.as_raw()
    }
}

impl fmt::Display for Pgid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_group_that_must_never_be_signalled_has_no_pgid() {
        assert!(Pgid::new(0).is_none());
        assert!(Pgid::new(1).is_none());
        assert!(Pgid::new(-5).is_none());
        // SAFETY: no precondition.
        assert!(Pgid::new(unsafe { libc::getpgrp() }).is_none());
    }

    #[test]
    fn a_run_id_reads_back_what_it_prints_and_nothing_else() {
        let id = RunId::new();
        assert_eq!(id.to_string().parse::<RunId>().unwrap(), id);
        assert!(id.to_string().to_uppercase().parse::<RunId>().is_err());
        assert!("..".parse::<RunId>().is_err());
    }

    #[test]
    fn a_worker_id_refuses_what_would_not_fit_or_not_print() {
        assert!(WorkerId::new("python/3").is_ok());
        for bad in ["", "a b", "a\n", "a=b", &"x".repeat(65)] {
            assert!(WorkerId::new(bad).is_err(), "{bad:?}");
        }
    }
}
