//! The caller's own children: who they are, and their end.
//!
//! As long as a child is not reaped its pid is its own, so a plain signal cannot hit a stranger.

use crate::sys;

/// The pids of the caller's children, in no order. It may miss one that was born or ended meanwhile:
/// callers repeat until the kernel says that there is none.
pub(crate) fn list() -> Vec<i32> {
    let text = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_else(|_| by_scan());
    text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// For kernels without the `children` file: everybody whose parent is the caller.
fn by_scan() -> String {
    let own = sys::pid().to_string();
    let Ok(entries) = std::fs::read_dir("/proc") else { return String::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .filter(|pid| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit(')').next().and_then(|rest| rest.split_ascii_whitespace().nth(1)) == Some(&own)
        })
        .collect::<Vec<_>>()
        .join(" ")
}

/// How many deaths are reaped in one go, however many more there are: whoever breeds faster than he can be
/// reaped must not keep anybody from looking up.
pub(crate) const REAPED_AT_ONCE: usize = 1000;

/// Kills and reaps until no child is left. What a child leaves behind becomes the caller's child, if the
/// caller is a subreaper or an init: so at the end no descendant is left.
///
/// Event-driven: each death wakes it, and each new orphan comes with a death. `await_death` is called once, if
/// nobody has died yet, before anybody is looked for: mostly those whom the caller has killed already were
/// everybody.
pub(crate) fn end_all(await_death: impl FnOnce(), mut reaped: impl FnMut(&sys::Waited)) {
    let mut await_death = Some(await_death);
    loop {
        // Reap first: mostly there is nobody to kill.
        for _ in 0..REAPED_AT_ONCE {
            match sys::wait_child(-1, sys::WNOHANG) {
                Ok(Some(waited)) => {
                    await_death = None;
                    reaped(&waited);
                }
                Err(error) if sys::errno(&error) == sys::ECHILD => return,
                Ok(None) | Err(_) => break,
            }
        }
        if let Some(await_death) = await_death.take() {
            await_death();
            continue;
        }
        for pid in list() {
            // Refused only where a program changed its user in an unprivileged run: a stated limit.
            let _ = sys::send_signal(pid, sys::SIGKILL);
        }
        match sys::wait_child(-1, 0) {
            Ok(Some(waited)) => reaped(&waited),
            Err(error) if sys::errno(&error) == sys::ECHILD => return,
            Ok(None) | Err(_) => {}
        }
    }
}
