//! Orders about exit hooks and the two kinds of exit.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use snakepit::lifecycle::{HookId, exit, exit_now, forget, on_exit, set_exit_limit};

use crate::{hang, number, tell, this_thread};

#[derive(Default)]
pub(crate) struct ExitHooks {
    hooks: BTreeMap<String, HookId>,
}

impl ExitHooks {
    pub(crate) fn obey(&mut self, words: &[&str]) -> bool {
        match words {
            ["hook", name, then @ ..] => {
                let said = format!("hook {name}");
                let then: Vec<String> = then.iter().map(|&word| word.to_owned()).collect();
                let hook = on_exit(*name, move || {
                    tell(&said);
                    act(&then);
                });
                self.hooks.insert((*name).to_owned(), hook);
                tell("ok");
            }
            ["forget", name] => tell(if forget(self.hooks[*name]) { "ok" } else { "gone" }),
            ["limit", millis] => {
                set_exit_limit(Duration::from_millis(number(millis) as u64));
                tell("ok");
            }
            ["hang-at-exit"] => {
                extern "C" fn never_ends() {
                    tell("atexit");
                    hang();
                }
                // SAFETY: the function lives as long as the program and never unwinds.
                assert_eq!(unsafe { libc::atexit(never_ends) }, 0);
                tell("ok");
            }
            ["exit", status] => exit(number(status)),
            ["exit-now", status] => exit_now(number(status)),
            ["exit-by-two-threads"] => exit_by_two_threads(),
            ["fill-stdout"] => fill_stdout(),
            _ => return false,
        }
        true
    }
}

fn act(then: &[String]) {
    let then: Vec<&str> = then.iter().map(String::as_str).collect();
    match then[..] {
        [] => {}
        ["panics"] => panic!("as ordered"),
        ["hangs"] => hang(),
        ["exits", status] => exit(number(status)),
        ["asks-another-to-exit", status] => {
            let status = number(status);
            let asked = Arc::new(Barrier::new(2));
            let begun = Arc::clone(&asked);
            std::thread::spawn(move || {
                begun.wait();
                exit(status)
            });
            asked.wait();
        }
        _ => panic!("no such hook: {then:?}"),
    }
}

/// Exits in two threads at the same moment. The first one reports itself.
fn exit_by_two_threads() -> ! {
    on_exit("who", || tell(&format!("left by {}", this_thread())));
    let together = Arc::new(Barrier::new(2));
    for status in [11, 12] {
        let together = Arc::clone(&together);
        let leave = move || {
            together.wait();
            exit(status)
        };
        std::thread::Builder::new().name(format!("thread-{status}")).spawn(leave).expect("a thread");
    }
    hang()
}

/// Fills the pipe, and writes a little into the buffer of std, which the exit has to flush.
fn fill_stdout() {
    let out = rustix::stdio::stdout();
    let flags = fcntl_getfl(out).expect("flags");
    fcntl_setfl(out, flags | OFlags::NONBLOCK).expect("set flags");
    // Writes whole pieces first, then single bytes, because the last bytes do not hold a whole piece.
    for piece in [&[b'.'; 4096][..], b"."] {
        while rustix::io::write(out, piece).is_ok() {}
    }
    fcntl_setfl(out, flags).expect("set flags");
    write!(std::io::stdout(), "not flushed").expect("the buffer has room");
}
