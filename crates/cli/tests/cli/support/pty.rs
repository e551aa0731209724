//! A person at a real terminal: types, reads the screen, hangs up.

use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Pid;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::{PATIENCE, Scene, ends_until};

pub(crate) const CTRL_C: &str = "\x03";
pub(crate) const CTRL_D: &str = "\x04";
pub(crate) const CTRL_Z: &str = "\x1a";
pub(crate) const CTRL_BACKSLASH: &str = "\x1c";

/// The text on the screen, and whether more can come.
#[derive(Default)]
struct Screen {
    text: String,
    /// The end of the text that `expect` has read.
    read: usize,
    closed: bool,
}

pub(crate) struct Pty {
    master: File,
    screen: Arc<(Mutex<Screen>, Condvar)>,
    child: Child,
    plug: PipeWriter,
    reader: JoinHandle<()>,
}

impl Pty {
    /// Starts an interactive bash on a new terminal and waits for its first prompt.
    pub(crate) fn bash(scene: &Scene) -> Self {
        let mut pty = Self::start(scene, &["bash", "--norc", "--noprofile", "-i"]);
        pty.prompt();
        pty
    }

    /// Starts any command as the leader of a session on a new terminal.
    pub(crate) fn start(scene: &Scene, words: &[&str]) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a pty");
        grantpt(&master).expect("grantpt");
        unlockpt(&master).expect("unlockpt");
        let size = Winsize { ws_row: 24, ws_col: 200, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size).expect("a size");
        let slave: OwnedFd =
            ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
                .expect("its other end");
        let copy = || slave.try_clone().expect("a copy of the terminal");
        // `setsid` becomes the command without a fork, because it leads no group. The child is therefore the session's
        // leader.
        let child = scene
            .command("setsid")
            .arg("--ctty")
            .args(words)
            .env("PS1", "prompt> ")
            .env("TERM", "xterm")
            .env("INPUTRC", "/dev/null")
            .env_remove("LESS")
            .stdin(copy())
            .stdout(copy())
            .stderr(copy())
            .spawn()
            .expect("setsid (Debian package util-linux)");
        drop(slave);
        let master = File::from(master);
        let screen = Arc::default();
        let (pulled, plug) = std::io::pipe().expect("a pipe");
        let reader = read_in_background(
            master.try_clone().expect("a copy of the master"),
            pulled,
            Arc::clone(&screen),
        );
        Self { master, screen, child, plug, reader }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn type_keys(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).expect("the terminal");
    }

    pub(crate) fn type_line(&mut self, line: &str) {
        self.type_keys(&format!("{line}\n"));
    }

    /// Waits until `text` appears on the screen, after the text that was expected before.
    #[track_caller]
    pub(crate) fn expect(&mut self, text: &str) {
        let until = Instant::now() + PATIENCE;
        let (screen, changed) = &*self.screen;
        let mut screen = screen.lock().expect("the screen");
        loop {
            if let Some(at) = screen.text[screen.read..].find(text) {
                screen.read += at + text.len();
                return;
            }
            let left = until.saturating_duration_since(Instant::now());
            let (before, after) = screen.text.split_at(screen.read);
            assert!(
                !left.is_zero() && !screen.closed,
                "{text:?} did not appear after:\n{before}\n--- but:\n{after}"
            );
            screen = changed.wait_timeout(screen, left).expect("the screen").0;
        }
    }

    /// Waits for the shell's prompt.
    #[track_caller]
    pub(crate) fn prompt(&mut self) {
        self.expect("prompt> ");
    }

    /// Asks the shell for the last status. The quotes keep the echo of the command from looking like the answer.
    #[track_caller]
    pub(crate) fn expect_status(&mut self, status: i32) {
        self.type_line("echo sta\"\"tus=$?.");
        self.expect(&format!("status={status}."));
        self.prompt();
    }

    /// Leaves the shell and waits until it ends.
    #[track_caller]
    pub(crate) fn leave(mut self) -> ExitStatus {
        self.type_line("exit 0");
        self.end()
    }

    /// Waits until the session's leader ends.
    #[track_caller]
    pub(crate) fn end(&mut self) -> ExitStatus {
        assert!(ends_until(self.pid(), Instant::now() + PATIENCE), "the session's leader did not end");
        self.child.wait().expect("its status")
    }

    /// Hangs up the terminal.
    pub(crate) fn hang_up(self) -> Child {
        let Self { master, child, plug, reader, .. } = self;
        drop(plug);
        reader.join().expect("the reader");
        drop(master);
        child
    }
}

/// Reads until the other side is closed or the terminal hangs up.
fn read_in_background(
    mut master: File,
    plug: PipeReader,
    screen: Arc<(Mutex<Screen>, Condvar)>,
) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        loop {
            let mut doors = [PollFd::new(&master, PollFlags::IN), PollFd::new(&plug, PollFlags::IN)];
            poll(&mut doors, None).expect("poll");
            let pulled = !doors[1].revents().is_empty();
            // The end of a terminal is an error: EIO once no process has its other side open.
            let length = if pulled { 0 } else { master.read(&mut bytes).unwrap_or(0) };
            let (lock, changed) = &*screen;
            let mut screen = lock.lock().unwrap_or_else(PoisonError::into_inner);
            screen.text.push_str(&String::from_utf8_lossy(&bytes[..length]));
            screen.closed = length == 0;
            changed.notify_all();
            if screen.closed {
                return;
            }
        }
    })
}

/// Fails with the way out if a program that the test needs is missing.
#[track_caller]
pub(crate) fn require(program: &str, package: &str) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|dir| dir.join(program).exists());
    assert!(found, "{program} is missing: install the Debian package {package}");
}
