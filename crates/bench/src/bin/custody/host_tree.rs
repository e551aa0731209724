//! A host with all its descendants, observed from outside: started, counted, killed and timed.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal};

use crate::BenchResult;

/// Only something broken takes longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A host that is ready, and all its descendants.
pub(crate) struct HostTree {
    host: Child,
    /// The host comes first.
    members: Vec<OwnedFd>,
}

impl HostTree {
    /// Starts the host and waits until it prints `ready` and the tree has `size` processes, including the host.
    pub(crate) fn start(command: &mut Command, size: usize) -> BenchResult<Self> {
        let mut host = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(host.stdout.take().expect("piped")).read_line(&mut line)?;
        if line.trim() != "ready" {
            let status = host.wait()?;
            return Err(format!("{command:?} was not ready: {line:?}, {status}").into());
        }
        let host_fd = open(host.id() as i32)?;
        let mut tree = Self { host, members: vec![host_fd] };
        let began = Instant::now();
        // A missing process would distort the time. Custody starts one spare shim after it has answered.
        loop {
            let below = descendants(tree.host.id() as i32)?;
            if below.len() + 1 == size {
                let fds = below.iter().map(|pid| open(*pid)).collect::<BenchResult<Vec<_>>>()?;
                tree.members.extend(fds);
                return Ok(tree);
            }
            if began.elapsed() > PATIENCE {
                return Err(format!("{} processes instead of {size}", below.len() + 1).into());
            }
            tree.settle()?;
        }
    }

    /// Kills the host with SIGKILL and returns the time until the last process of the tree has ended.
    pub(crate) fn kill(mut self) -> BenchResult<Duration> {
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (at, member) in self.members.iter().enumerate() {
            let once = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
            epoll::add(&watch, member, epoll::EventData::new_u64(at as u64), once)?;
        }
        self.settle()?;
        let mut left = self.members.len();
        let mut events = vec![MaybeUninit::<epoll::Event>::uninit(); 256];
        let patience = Timespec::try_from(PATIENCE)?;

        let began = Instant::now();
        pidfd_send_signal(&self.members[0], Signal::KILL)?;
        while left > 0 {
            let (gone, _) = epoll::wait(&watch, &mut events[..], Some(&patience))?;
            if gone.is_empty() {
                return Err(format!("{left} processes are still there after {PATIENCE:?}").into());
            }
            left -= gone.len();
        }
        let took = began.elapsed();

        self.host.wait()?;
        reap();
        Ok(took)
    }

    /// Waits a moment for the effects of the start to settle. If the host dies early, returns an error.
    fn settle(&self) -> BenchResult<()> {
        let mut host = [PollFd::new(&self.members[0], PollFlags::IN)];
        let while_alive = Timespec::try_from(Duration::from_millis(20))?;
        match poll(&mut host, Some(&while_alive))? {
            0 => Ok(()),
            _ => Err("the host died before it was killed".into()),
        }
    }
}

impl Drop for HostTree {
    fn drop(&mut self) {
        // Processes are left only after a failure. The pidfds make sure that the signal reaches the right ones.
        for member in &self.members {
            let _ = pidfd_send_signal(member, Signal::KILL);
        }
        let _ = self.host.wait();
    }
}

fn open(pid: i32) -> BenchResult<OwnedFd> {
    let pid = Pid::from_raw(pid).ok_or("pid 0")?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// Returns all descendants of `root`, found by their parents in `/proc`.
pub(crate) fn descendants(root: i32) -> BenchResult<Vec<i32>> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if let Some(parent) = parent_of(pid) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut open = vec![root];
    while let Some(pid) = open.pop() {
        if let Some(below) = children.get(&pid) {
            found.extend(below);
            open.extend(below);
        }
    }
    Ok(found)
}

fn parent_of(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    let after_name = stat.rsplit_once(')')?.1;
    after_name.split_whitespace().nth(1)?.parse().ok()
}

/// Makes this process a subreaper that reaps orphans, because not every machine's init does.
pub(crate) struct Subreaper(());

impl Subreaper {
    pub(crate) fn open() -> BenchResult<Self> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        Ok(Self(()))
    }
}

impl Drop for Subreaper {
    fn drop(&mut self) {
        reap();
        let _ = rustix::process::set_child_subreaper(None);
    }
}

fn reap() {
    while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
}
