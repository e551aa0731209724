//! The tier `group` without pidfds and shims: what it ends when the host dies, what the next start ends, and what
//! escapes. Built for Unixes other than Linux, and on Linux with `--cfg snakepit_portable`, as `./test` does.

mod host;
mod identity;
mod keeper;
mod tiers;

use std::process::Child;
use std::sync::mpsc::channel;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

/// Waits for an operation that has no time-out.
fn in_time<T: Send + 'static>(what: &str, wait: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, waited) = channel();
    std::thread::spawn(move || done.send(wait()));
    waited.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{what}: not in {PATIENCE:?}"))
}

/// Starts a process that belongs to no run.
#[expect(clippy::disallowed_methods, reason = "a bystander that must be left alone")]
fn bystander() -> Child {
    use std::os::unix::process::CommandExt;
    std::process::Command::new("sleep").arg("60").process_group(0).spawn().unwrap()
}

fn assert_alive_and_end(mut bystander: Child) {
    assert!(bystander.try_wait().unwrap().is_none(), "the bystander was killed");
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}
