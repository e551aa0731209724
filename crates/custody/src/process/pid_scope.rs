//! The scope in which a pid means something: one boot of one machine, one PID namespace.

use super::digest::fnv1a;

/// One boot and one PID namespace. Systems other than Linux have only one namespace, 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PidScope {
    pub(crate) boot: [u8; 16],
    pub(crate) pidns: u64,
}

impl PidScope {
    /// Returns a digest of boot and PID namespace.
    pub(crate) fn digest(self) -> u64 {
        fnv1a(self.boot.into_iter().chain(self.pidns.to_le_bytes()))
    }
}
