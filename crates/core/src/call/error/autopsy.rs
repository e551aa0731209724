//! What is known about a worker's death.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::custody::{Exit, ExitStatus, Pid, WorkerId};
use snakepit_policy::quarantine::DeathRecord;
use snakepit_process_stats::OomVerdict;

/// The number of lines that are shown of a stack.
const SHOWN_LINES: usize = 30;

/// The number of bytes that are kept of the texts of one autopsy.
const KEPT_TEXT: usize = 4096;
/// The number of bytes that are kept of one line.
const KEPT_LINE: usize = 1024;

/// What is known about a worker's death.
///
/// ```no_run
/// use snakepit::args;
/// use snakepit::call::OomVerdict;
///
/// # async fn example(pit: snakepit::Snakepit) {
/// if let Err(error) = pit.call::<()>("train", args! { rows: 1_000_000_000 }).await
///     && let Some(autopsy) = error.autopsy()
/// {
///     println!("{autopsy}");
///     if autopsy.oom == OomVerdict::Yes {
///         println!("it had {:?} bytes of memory", autopsy.rss);
///     }
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Autopsy {
    /// The worker.
    pub worker: WorkerId,
    /// The process of the worker, if the worker was a process.
    pub pid: Option<Pid>,
    /// How the process ended, if that was seen in time.
    pub exit: Option<Exit>,
    /// Why Snakepit ended the worker, if it did.
    pub fault: Option<String>,
    /// Whether the kernel killed the worker because memory ran out.
    pub oom: OomVerdict,
    /// The most resident memory that the worker had, in bytes, if known.
    pub rss: Option<u64>,
    /// How long the worker had served.
    pub age: Duration,
    /// The number of calls that the worker had been given.
    pub calls: u64,
    /// What the worker printed during the call in which it died, as in
    /// [`CallError::Timeout`](crate::CallError::Timeout).
    pub output: Vec<String>,
    /// Where the worker's code was, if the worker answered or reported it on its own. For a Python worker: the stacks
    /// of its threads, the crashed one first.
    pub stack: Option<String>,
}

impl fmt::Display for Autopsy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {}", self.worker)?;
        if let Some(pid) = self.pid {
            write!(f, " (pid {pid})")?;
        }
        let calls = if self.calls == 1 { "call" } else { "calls" };
        let ending = if self.fault.is_some() { "was ended".to_owned() } else { self.own_ending() };
        write!(f, " {ending} after {} {calls}", self.calls)?;
        if let Some(rss) = self.rss {
            write!(f, ", at most {} MiB resident", rss >> 20)?;
        }
        if let Some(fault) = &self.fault {
            write!(f, ": {fault}")?;
        }
        if !self.output.is_empty() {
            write!(f, "; its last lines:\n  {}", self.output.join("\n  "))?;
        }
        if let Some(stack) = &self.stack {
            let lines: Vec<&str> = stack.lines().collect();
            let (shown, hidden) = lines.split_at(lines.len().min(SHOWN_LINES));
            let lead = if self.output.is_empty() { "; its" } else { "\nits" };
            write!(f, "{lead} stack:\n  {}", shown.join("\n  "))?;
            if !hidden.is_empty() {
                write!(f, "\n  ({} lines more)", hidden.len())?;
            }
        }
        Ok(())
    }
}

impl Autopsy {
    /// Describes how the worker ended, in words that fit every worker that ends in the same way. It does not matter what
    /// was noticed first: on a busy machine, the host sees a broken socket
    /// long before it sees that the process has ended. The broken socket is then the fault for which the worker was
    /// ended.
    pub fn own_ending(&self) -> String {
        use rustix::process::Signal;
        let by_itself = match self.exit.map(|exit| exit.status) {
            Some(ExitStatus::Code(_)) => true,
            Some(ExitStatus::Signal(signal)) => {
                ![Signal::KILL.as_raw(), Signal::TERM.as_raw()].contains(&signal)
            }
            Some(ExitStatus::Lost | ExitStatus::ShimKilled) | None => false,
        };
        let fault = self.fault.as_deref().filter(|_| !by_itself);
        match (fault, self.exit.map(|exit| exit.status)) {
            (Some(fault), _) => format!("was ended: {fault}"),
            (None, Some(ExitStatus::Code(code))) => format!("exited with status {code}"),
            (None, Some(ExitStatus::Signal(signal))) => {
                format!("died of {}{}", signal_name(signal), self.memory_verdict(signal))
            }
            (None, Some(ExitStatus::Lost)) => "died with its keeper".to_owned(),
            (None, Some(ExitStatus::ShimKilled)) => "died with its shim".to_owned(),
            (None, None) => "is gone".to_owned(),
        }
    }

    /// Says whether memory ran out, which is a question only for SIGKILL.
    fn memory_verdict(&self, signal: i32) -> &'static str {
        if signal != rustix::process::Signal::KILL.as_raw() {
            return "";
        }
        match self.oom {
            OomVerdict::Yes => " (the kernel killed it because memory ran out)",
            OomVerdict::No => " (memory had not run out)",
            OomVerdict::Unknown => " (whether memory ran out is unknown)",
        }
    }
}

impl DeathRecord for Autopsy {
    fn worker(&self) -> &WorkerId {
        &self.worker
    }

    fn shortened(self: &Arc<Self>) -> Arc<Self> {
        let fault = self.fault.as_ref();
        let stack = self.stack.as_ref();
        let text: usize = self.output.iter().chain(fault).chain(stack).map(String::len).sum();
        if text <= KEPT_TEXT {
            return Arc::clone(self);
        }
        // The fault and the stack each get the room of one line.
        let mut room = KEPT_TEXT - KEPT_LINE * (1 + stack.iter().count());
        let mut output = Vec::new();
        for line in self.output.iter().rev() {
            let line = cut(line);
            let Some(left) = room.checked_sub(line.len()) else { break };
            room = left;
            output.push(line);
        }
        output.reverse();
        let stack = stack.map(|it| cut(it));
        Arc::new(Autopsy { fault: fault.map(|it| cut(it)), output, stack, ..(**self).clone() })
    }
}

fn cut(line: &str) -> String {
    const MARK: &str = "…";
    if line.len() <= KEPT_LINE {
        return line.to_owned();
    }
    let end = line.floor_char_boundary(KEPT_LINE - MARK.len());
    format!("{}{MARK}", &line[..end])
}

fn signal_name(signal: i32) -> String {
    use rustix::process::Signal;
    let name = match Signal::from_named_raw(signal) {
        Some(Signal::KILL) => "SIGKILL",
        Some(Signal::SEGV) => "SIGSEGV",
        Some(Signal::ABORT) => "SIGABRT",
        Some(Signal::BUS) => "SIGBUS",
        Some(Signal::TERM) => "SIGTERM",
        Some(Signal::INT) => "SIGINT",
        Some(Signal::HUP) => "SIGHUP",
        Some(Signal::ILL) => "SIGILL",
        Some(Signal::FPE) => "SIGFPE",
        Some(Signal::PIPE) => "SIGPIPE",
        Some(Signal::SYS) => "SIGSYS",
        Some(Signal::XCPU) => "SIGXCPU",
        Some(Signal::XFSZ) => "SIGXFSZ",
        _ => return format!("signal {signal}"),
    };
    name.to_owned()
}

/// Returns the autopsy of a worker that crashed in its first call.
#[cfg(test)]
pub(crate) fn crash() -> Autopsy {
    let status = ExitStatus::Signal(rustix::process::Signal::SEGV.as_raw());
    Autopsy {
        worker: WorkerId::new("w1").expect("an id"),
        pid: None,
        exit: Some(Exit::new(status)),
        fault: None,
        oom: OomVerdict::No,
        rss: None,
        age: Duration::from_secs(1),
        calls: 1,
        output: vec!["Fatal Python error: Segmentation fault".into()],
        stack: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_autopsy_keeps_only_part_of_much_output() {
        let line = "ä".repeat(5000);
        let long = Autopsy { output: vec![line.clone(); 20], fault: Some(line.clone()), ..crash() };
        let kept = Arc::new(long).shortened();
        let bytes: usize = kept.output.iter().chain(&kept.fault).map(String::len).sum();
        assert!(bytes <= KEPT_TEXT && kept.output.len() == 3, "{bytes} bytes, {} lines", kept.output.len());
        assert!(kept.output[0].ends_with('…'));
        let kept = Arc::new(Autopsy { stack: Some(line), ..crash() }).shortened();
        assert!(kept.stack.as_ref().is_some_and(|stack| stack.len() <= KEPT_LINE));
        let short = Arc::new(crash());
        assert!(Arc::ptr_eq(&short, &short.shortened()));
    }

    fn killed(oom: OomVerdict) -> Autopsy {
        let exit = Exit::new(ExitStatus::Signal(9));
        Autopsy {
            worker: WorkerId::new("w1").expect("an id"),
            pid: None,
            exit: Some(exit),
            fault: None,
            oom,
            rss: Some(30 << 20),
            age: Duration::from_secs(1),
            calls: 2,
            output: Vec::new(),
            stack: None,
        }
    }

    #[test]
    fn an_autopsy_shows_how_the_worker_ended_then_its_last_lines_then_its_stack() {
        let autopsy = Autopsy {
            output: vec!["a last word".into()],
            stack: Some("Current thread 0x1 (most recent call first):\n  File \"a.py\", line 1 in f".into()),
            ..killed(OomVerdict::Yes)
        };
        assert_eq!(
            autopsy.to_string(),
            "worker w1 died of SIGKILL (the kernel killed it because memory ran out) after 2 calls, at most 30 MiB \
             resident; its last lines:\n  a last word\nits stack:\n  Current thread 0x1 (most recent call first):\n    \
             File \"a.py\", line 1 in f"
        );
        let no = "worker w1 died of SIGKILL (memory had not run out) after 2 calls, at most 30 MiB resident";
        assert_eq!(killed(OomVerdict::No).to_string(), no);
        assert!(killed(OomVerdict::Unknown).to_string().contains("(whether memory ran out is unknown)"));
    }

    #[test]
    fn an_exit_of_the_process_itself_outranks_a_fault_seen_before_it() {
        let ended = |fault: Option<&str>, status: ExitStatus| {
            let mut autopsy = Autopsy { fault: fault.map(Into::into), ..killed(OomVerdict::No) };
            autopsy.exit = Some(Exit::new(status));
            autopsy.own_ending()
        };
        let broken = Some("it closed its socket");
        for seen_first in [None, broken] {
            assert_eq!(ended(seen_first, ExitStatus::Code(3)), "exited with status 3");
            assert_eq!(ended(seen_first, ExitStatus::Signal(11)), "died of SIGSEGV");
        }
        assert_eq!(ended(broken, ExitStatus::Signal(9)), "was ended: it closed its socket");
    }

    #[test]
    fn a_long_stack_is_shortened_only_for_display() {
        let stack = vec!["  File \"a.py\", line 1 in f"; 100].join("\n");
        let autopsy = Autopsy { stack: Some(stack), ..killed(OomVerdict::No) };
        let shown = autopsy.to_string();
        assert_eq!(shown.lines().count(), 1 + SHOWN_LINES + 1);
        assert!(shown.ends_with("(70 lines more)"), "{shown}");
    }
}
