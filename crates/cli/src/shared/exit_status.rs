//! The exit statuses of all commands.

use nix::sys::signal::Signal;

pub(crate) const SUCCESS: u8 = 0;

/// The work was done and failed.
pub(crate) const FAILED: u8 = 1;

/// The command line, or a file that it names, cannot be used.
pub(crate) const USAGE: u8 = 2;

/// The mailbox or the message does not exist.
pub(crate) const MISSING: u8 = 3;

pub(crate) const TIMED_OUT: u8 = 124;

/// Snakepit itself failed.
pub(crate) const INTERNAL: u8 = 125;

/// Returns the status of work that a signal ended, as a shell reports it.
pub(crate) fn of_signal(signal: Signal) -> u8 {
    128 + signal as u8
}
