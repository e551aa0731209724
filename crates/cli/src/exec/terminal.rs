//! Tracks who holds the terminal: this process, or the command while it runs in the foreground.
//!
//! The rules are a shell's. The terminal is lent only while our own group has it. It comes back when the command stops
//! or ends, and is lent again when we continue in the foreground. In a pipeline, other members of our group may need it
//! as well. There it is lent only once the command asks for it, by stopping with TTIN or TTOU.

use std::fs::{File, OpenOptions};
use std::io::{stdin, stdout};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;

use nix::unistd::{Pid, getpgrp, getsid, tcgetpgrp, tcsetpgrp};
use rustix::fs::{FileType, OFlags, fstat};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetsid, tcsetattr};
use snakepit::custody::Pgid;

/// The controlling terminal.
pub(super) struct ControllingTerminal {
    tty: File,
    /// Our own group, or 0 if it has no number in this container.
    home: Pid,
    /// The modes of the terminal when we started.
    modes: Option<Termios>,
    rule: LendingRule,
    holder: TerminalHolder,
}

/// When to lend the terminal to the command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LendingRule {
    /// Whenever we are in the foreground.
    AtOnce,
    /// When the command asks for it.
    OnDemand,
}

/// How the command ended, which decides whether the modes of the terminal are restored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CommandEnd {
    Exited,
    Killed,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TerminalHolder {
    /// Our group, or the group that held the terminal before us.
    Home,
    /// The command's group.
    Command,
}

impl ControllingTerminal {
    /// Finds the controlling terminal, whatever the standard streams are.
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
        let rule = if piped { LendingRule::OnDemand } else { LendingRule::AtOnce };
        let modes = tcgetattr(&tty).ok();
        Some(Self { tty, home: getpgrp(), modes, rule, holder: TerminalHolder::Home })
    }

    /// Reports whether our own group holds the terminal.
    pub(super) fn is_ours(&self) -> bool {
        tcgetpgrp(&self.tty).is_ok_and(|group| group == self.home)
    }

    /// Reports whether custody may lend the terminal before the command's first instruction. That needs standard input.
    pub(super) fn may_be_lent_at_start(&self) -> bool {
        self.rule == LendingRule::AtOnce && self.is_ours() && tcgetsid(stdin().as_fd()).is_ok()
    }

    pub(super) fn lent_by_custody(&mut self) {
        self.holder = TerminalHolder::Command;
    }

    pub(super) fn holder(&self) -> TerminalHolder {
        self.holder
    }

    pub(super) fn is_lent(&self) -> bool {
        self.holder == TerminalHolder::Command
    }

    /// Lends the terminal to the command's group, if our group holds it.
    pub(super) fn lend(&mut self, group: Pgid) -> bool {
        let lent = self.is_ours() && tcsetpgrp(&self.tty, Pid::from_raw(group.as_raw())).is_ok();
        if lent {
            self.holder = TerminalHolder::Command;
        }
        lent
    }

    /// Lends the terminal again after a stop, if it was lent before or the rule allows it.
    pub(super) fn lend_again(&mut self, group: Pgid, before: TerminalHolder) {
        if before == TerminalHolder::Command || self.rule == LendingRule::AtOnce {
            self.lend(group);
        }
    }

    /// Takes the terminal back from the command.
    pub(super) fn take_back(&mut self) {
        if self.holder == TerminalHolder::Command && self.home.as_raw() != 0 {
            // This fails only if the terminal has gone.
            let _ = tcsetpgrp(&self.tty, self.home);
        }
        self.holder = TerminalHolder::Home;
    }

    /// Takes the terminal back at the end. Restores its modes if the command was killed and could not do so itself.
    pub(super) fn restore(&mut self, end: CommandEnd) {
        let lent = self.is_lent();
        self.take_back();
        if lent
            && end == CommandEnd::Killed
            && let Some(modes) = &self.modes
        {
            let _ = tcsetattr(&self.tty, OptionalActions::Drain, modes);
        }
    }

    /// Reports whether a shell started us as a job of our own, not as part of a script or as a session leader.
    pub(super) fn is_job_leader(&self) -> bool {
        let us = Pid::this();
        self.home == us && getsid(None).is_ok_and(|leader| leader != us)
    }
}

impl Drop for ControllingTerminal {
    fn drop(&mut self) {
        self.take_back();
    }
}
