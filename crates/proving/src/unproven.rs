//! What cannot be proven on this machine: said aloud, and repeated by `./test` at its end.
//!
//! Owns how that is said, and whether there are PID namespaces at all. Knows nothing of custody, whose own word for it
//! would be no proof; the tests of the other crates include this file.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// The variable that names the file in which `./test` collects what was left out.
const LIST: &str = "SNAKEPIT_LEFT_OUT";

/// Says that something could not be proven on this machine; a silent pass would be a lie.
pub fn unproven(why: &str) {
    eprintln!("NOT PROVEN HERE: {why}");
    let Some(list) = std::env::var_os(LIST) else { return };
    let thread = std::thread::current();
    let named = std::env::var("NEXTEST_TEST_NAME").ok();
    let test = named.as_deref().or(thread.name()).unwrap_or("a test");
    // One write, so that the lines of tests that run at the same time do not mix.
    let line = format!("{why}\t{test}\n");
    let written = OpenOptions::new().append(true).create(true).open(&list);
    written.and_then(|mut file| file.write_all(line.as_bytes())).unwrap_or_else(|error| {
        panic!("cannot note in {} that {why}: {error}", list.to_string_lossy());
    });
}

/// Why a user cannot have a PID namespace with a `/proc` of its own here, by the system's own tool; `None` if that is possible.
pub fn namespace_refusal(user: Option<u32>) -> Option<String> {
    let try_with = |options: &[&str]| {
        let mut unshare = Command::new("unshare");
        unshare.args(options).args(["--pid", "--fork", "--mount-proc", "true"]);
        unshare.stdin(Stdio::null()).current_dir("/");
        if let Some(user) = user {
            unshare.uid(user).gid(user);
        }
        match unshare.output() {
            Ok(done) if done.status.success() => None,
            Ok(done) => Some(String::from_utf8_lossy(&done.stderr).trim().to_owned()),
            Err(error) => Some(format!("unshare: {error}")),
        }
    };
    // As root, or in a user namespace.
    let refused = try_with(&[])?;
    try_with(&["--map-root-user"])?;
    Some(format!("the namespace tier, without PID namespaces ({refused})"))
}
