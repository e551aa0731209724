//! Faults on demand at the steps of a spawn: `step=action;step@key=action`.
//!
//! Actions: `kill-host`, `kill-keeper`, `kill-shim`, `kill-self`, `errno:N`, `pause:MS`. `@key` limits a fault to the
//! n-th spawn of the run. With `note=FILE`, the step of each fault is written to that file before the fault acts, so
//! that a test can see it. Without the feature `failpoints` this file is one empty function.

#[cfg(not(feature = "failpoints"))]
#[expect(clippy::unnecessary_wraps, reason = "with the feature, it can fail")]
pub(crate) fn hit(_step: &str, _key: u64) -> std::io::Result<()> {
    Ok(())
}

#[cfg(feature = "failpoints")]
pub(crate) use active::{arm, hit, know_shim};

#[cfg(feature = "failpoints")]
mod active {
    use std::io::{Error, Result, Write};
    use std::os::fd::RawFd;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicI32, Ordering};

    use crate::plan::PlannedFault;
    use crate::steps::STEPS;
    use crate::sys;

    struct Plan {
        faults: Vec<PlannedFault>,
        note: Option<String>,
        host: RawFd,
        keeper: RawFd,
    }

    static PLAN: OnceLock<Plan> = OnceLock::new();
    static SHIM: AtomicI32 = AtomicI32::new(0);

    /// Sets the plan. The two pidfds stay open in the keeper, the shims and the processes at the gate.
    pub(crate) fn arm(text: &[u8], host: RawFd, keeper: RawFd) {
        let faults = PlannedFault::parse_all(&String::from_utf8_lossy(text));
        let note = faults.iter().find(|fault| fault.step == "note").map(|fault| fault.action.clone());
        let _ = PLAN.set(Plan { faults, note, host, keeper });
    }

    /// Stores the pid of the shim that the current spawn uses.
    pub(crate) fn know_shim(pid: i32) {
        SHIM.store(pid, Ordering::Relaxed);
    }

    pub(crate) fn hit(step: &str, key: u64) -> Result<()> {
        debug_assert!(STEPS.contains(&step), "{step}");
        let Some(plan) = PLAN.get() else { return Ok(()) };
        for fault in &plan.faults {
            if fault.step != step || fault.only.is_some_and(|only| only != key) {
                continue;
            }
            if let Some(note) = &plan.note {
                let mut file = std::fs::OpenOptions::new().append(true).create(true).open(note)?;
                file.write_all(format!("{step}\n").as_bytes())?;
            }
            match fault.action.as_str() {
                "kill-host" => sys::pidfd_signal(plan.host, sys::SIGKILL)?,
                "kill-keeper" => sys::pidfd_signal(plan.keeper, sys::SIGKILL)?,
                "kill-shim" => {
                    let shim = match step.split_once('.') {
                        Some(("worker", _)) => sys::parent_pid(),
                        Some(("shim", _)) => sys::pid(),
                        _ => SHIM.load(Ordering::Relaxed),
                    };
                    if shim > 0 {
                        sys::send_signal(shim, sys::SIGKILL)?;
                    }
                }
                "kill-self" => sys::send_signal(sys::pid(), sys::SIGKILL)?,
                other => {
                    if let Some(time) = other.strip_prefix("pause:").and_then(|ms| ms.parse().ok()) {
                        // Lets a test kill from outside, which is impossible from within a PID namespace.
                        sys::poll_any(&mut [], time)?;
                    }
                    if let Some(number) = fault.errno() {
                        return Err(Error::from_raw_os_error(number));
                    }
                }
            }
        }
        Ok(())
    }
}
