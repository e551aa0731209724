//! Whether a lack of memory ended a process.

use std::fmt;

/// Whether the kernel killed a worker because memory ran out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OomVerdict {
    /// The kernel killed it.
    Yes,
    /// The kernel did not kill it.
    No,
    /// The process was killed, but neither the kernel log nor the counters of its cgroup can be read.
    Unknown,
}

impl fmt::Display for OomVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Unknown => "unknown",
        })
    }
}
