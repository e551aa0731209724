//! A user other than the one who runs the tests, and whether the tests may read that user's processes.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// An arbitrary user.
pub const NOBODY: u32 = 65534;

/// Returns why nothing can be proven here about processes of another user, or `None` if it can.
pub fn refusal() -> Option<String> {
    if !crate::is_root() {
        return Some("only root can become another user".to_owned());
    }
    let mut cat = Command::new("cat");
    cat.uid(NOBODY).gid(NOBODY).current_dir("/").stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = match cat.spawn() {
        Ok(child) => child,
        Err(error) => return Some(format!("root cannot become another user ({error})")),
    };
    // The census reads this file of every process. In most containers, root may not.
    let seen = fs::read(format!("/proc/{}/maps", child.id()));
    // It reads until the pipe has no writer.
    drop(child.stdin.take());
    child.wait().expect("wait for it");
    seen.err().map(|error| format!("root cannot read the processes of other users ({error})"))
}
