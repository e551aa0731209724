//! What cannot be proven on this machine. Tests print it, and `./test` repeats it at its end.
//!
//! Owns how that is reported, and the check for PID namespaces. Knows nothing of custody, because custody's own
//! statement would be no proof. The tests of the other crates include this file.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// The variable that names the file in which `./test` collects what was left out.
const LIST: &str = "SNAKEPIT_LEFT_OUT";

/// Reports that something could not be proven on this machine. To pass silently would be misleading.
pub fn unproven(why: &str) {
    eprintln!("NOT PROVEN HERE: {why}");
    let Some(list) = std::env::var_os(LIST) else { return };
    let thread = std::thread::current();
    let named = std::env::var("NEXTEST_TEST_NAME").ok();
    let test = named.as_deref().or(thread.name()).unwrap_or("a test");
    // A single write keeps the lines of concurrent tests apart.
    let line = format!("{why}\t{test}\n");
    let written = OpenOptions::new().append(true).create(true).open(&list);
    written.and_then(|mut file| file.write_all(line.as_bytes())).unwrap_or_else(|error| {
        panic!("cannot note in {} that {why}: {error}", list.to_string_lossy());
    });
}

/// Returns why a user cannot have a PID namespace with its own `/proc` here. Returns `None` if that is possible, as
/// root or in a user namespace.
pub fn namespace_refusal(user: Option<u32>) -> Option<String> {
    const PID: [&str; 3] = ["--pid", "--fork", "--mount-proc"];
    let refused = unshare_refusal(user, &PID)?;
    unshare_refusal(user, &[&["--map-root-user"], &PID[..]].concat())?;
    Some(format!("the namespace tier ({refused})"))
}

/// Returns why the system's own tool cannot give a user the namespaces that these options request, or `None` if it can.
pub fn unshare_refusal(user: Option<u32>, options: &[&str]) -> Option<String> {
    let mut unshare = Command::new("unshare");
    unshare.args(options).arg("true").stdin(Stdio::null()).current_dir("/");
    if let Some(user) = user {
        unshare.uid(user).gid(user);
    }
    match unshare.output() {
        Ok(done) if done.status.success() => None,
        Ok(done) => Some(String::from_utf8_lossy(&done.stderr).trim().to_owned()),
        Err(error) => Some(format!("unshare: {error}")),
    }
}
