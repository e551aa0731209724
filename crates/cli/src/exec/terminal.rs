//! Who has the terminal: us, or the command while it runs in the foreground.
//!
//! The rules are a shell's. The terminal is lent only while our own group has it, comes back when the command
//! stops or ends, and is lent again when we are continued in the foreground. In a pipeline the others of our
//! group may need it as well, so there it is lent only once the command asks, by stopping with TTIN or TTOU.

use std::fs::{File, OpenOptions};
use std::io::{stdin, stdout};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;

use nix::unistd::{Pid, getpgrp, getsid, tcgetpgrp, tcsetpgrp};
use rustix::fs::{FileType, OFlags, fstat};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetsid, tcsetattr};
use snakepit::custody::Pgid;

/// The controlling terminal.
pub(super) struct Terminal {
    tty: File,
    /// Our own group. In a container it can be one that has no number here: 0.
    home: Pid,
    /// How the terminal was set when we came.
    modes: Option<Termios>,
    manner: Manner,
    holder: Holder,
}

/// When the command gets the terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Manner {
    /// Whenever we are in the foreground.
    AtOnce,
    /// When it asks.
    OnDemand,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holder {
    /// Our group, or whoever had it before us.
    Home,
    /// The command's group.
    Command,
}

impl Terminal {
    /// The controlling terminal, if there is one, whatever the standard streams are.
    pub(super) fn find() -> Option<Self> {
        let tty = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(OFlags::NOCTTY.bits() as i32)
            .open("/dev/tty")
            .ok()?;
        let piped = [fstat(stdin()), fstat(stdout())]
            .iter()
            .flatten()
            .any(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo);
        let manner = if piped { Manner::OnDemand } else { Manner::AtOnce };
        let modes = tcgetattr(&tty).ok();
        Some(Self { tty, home: getpgrp(), modes, manner, holder: Holder::Home })
    }

    /// Whether our own group has the terminal.
    pub(super) fn is_ours(&self) -> bool {
        tcgetpgrp(&self.tty).is_ok_and(|group| group == self.home)
    }

    /// Whether custody may lend it before the command's first instruction: it does so through standard input.
    pub(super) fn may_be_lent_at_start(&self) -> bool {
        self.manner == Manner::AtOnce && self.is_ours() && tcgetsid(stdin().as_fd()).is_ok()
    }

    pub(super) fn lent_by_custody(&mut self) {
        self.holder = Holder::Command;
    }

    pub(super) fn is_lent(&self) -> bool {
        self.holder == Holder::Command
    }

    /// Lends the terminal to the command's group, if it is ours to lend.
    pub(super) fn lend(&mut self, group: Pgid) -> bool {
        let lent = self.is_ours() && tcsetpgrp(&self.tty, Pid::from_raw(group.as_raw())).is_ok();
        if lent {
            self.holder = Holder::Command;
        }
        lent
    }

    /// Lends it again after a stop, if the command is one that has it whenever we could have it.
    pub(super) fn lend_again(&mut self, group: Pgid, before: bool) {
        if before || self.manner == Manner::AtOnce {
            self.lend(group);
        }
    }

    /// Takes it back from the command.
    pub(super) fn take_back(&mut self) {
        if self.holder == Holder::Command && self.home.as_raw() != 0 {
            // Fails only when the terminal is gone, and then nobody needs it.
            let _ = tcsetpgrp(&self.tty, self.home);
        }
        self.holder = Holder::Home;
    }

    /// Takes it back at the end. A command that was killed had no chance to put the modes right.
    pub(super) fn come_home(&mut self, killed: bool) {
        let lent = self.is_lent();
        self.take_back();
        if lent
            && killed
            && let Some(modes) = &self.modes
        {
            let _ = tcsetattr(&self.tty, OptionalActions::Drain, modes);
        }
    }

    /// Whether a shell started us as a job of its own, and not as a part of a script or as a session's leader.
    pub(super) fn is_a_jobs_leader(&self) -> bool {
        let us = Pid::this();
        self.home == us && getsid(None).is_ok_and(|leader| leader != us)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.take_back();
    }
}
