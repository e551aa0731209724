//! A separate state directory for every test, and helpers that read its contents.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use snakepit_custody::{Command, CustodyOptions, Pid, ProcessEntry, Run, Stdio, WorkerProcess};

pub(crate) struct Home(tempfile::TempDir);

impl Home {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn open(&self) -> Run {
        self.open_with(&CustodyOptions::default())
    }

    pub(crate) fn open_with(&self, config: &CustodyOptions) -> Run {
        Run::open(config.clone().state_dir(self.path())).unwrap()
    }

    /// Returns whether no run is recorded.
    pub(crate) fn is_empty(&self) -> bool {
        std::fs::read_dir(self.path().join("runs")).unwrap().next().is_none()
    }

    pub(crate) fn living_on_record(&self) -> Vec<ProcessEntry> {
        snakepit_custody::ledger(self.path()).unwrap().into_iter().flat_map(|run| run.processes).collect()
    }

    /// Copies a run's opening record, with a host that has ended.
    pub(crate) fn forge_dead_run(&self, run: &Run) -> String {
        let mut slot = std::fs::read(run.dir().join("ledger")).unwrap()[..512].to_vec();
        // A start time and an inode that no living process has.
        slot[48..64].fill(0xEE);
        let crc = crc32(&slot[..508]);
        slot[508..].copy_from_slice(&crc.to_le_bytes());
        let name = "0".repeat(32);
        let dir = self.path().join("runs").join(&name);
        std::fs::create_dir(&dir).unwrap();
        std::fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        std::fs::write(dir.join("lock"), "").unwrap();
        std::fs::write(dir.join("ledger"), slot).unwrap();
        name
    }
}

/// Returns kind and key of every record of a run.
pub(crate) fn records(run: &Run) -> Vec<(u8, u64)> {
    let bytes = std::fs::read(run.dir().join("ledger")).unwrap();
    bytes
        .as_chunks::<512>()
        .0
        .iter()
        .map(|slot| (slot[6], u64::from_le_bytes(slot[8..16].try_into().unwrap())))
        .collect()
}

pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(
            crc ^ u32::from(*byte),
            |crc, _| if crc & 1 == 1 { (crc >> 1) ^ 0xEDB8_8320 } else { crc >> 1 },
        )
    })
}

pub(crate) fn shell(script: &str) -> Command {
    Command::new("sh").args(["-c", script])
}

/// Runs a command to its end and returns its output.
pub(crate) fn output_of(run: &Run, command: Command) -> String {
    let (reader, writer) = std::io::pipe().unwrap();
    let worker = run.spawn(command.stdin(Stdio::Null).stdout(std::os::fd::OwnedFd::from(writer))).unwrap();
    let mut text = String::new();
    BufReader::new(reader).read_to_string(&mut text).unwrap();
    worker.wait();
    text
}

/// Starts a command and returns its lines as they come.
pub(crate) fn lines_of(run: &Run, command: Command) -> (WorkerProcess, impl Iterator<Item = String> + use<>) {
    let (reader, writer) = std::io::pipe().unwrap();
    let worker = run.spawn(command.stdin(Stdio::Null).stdout(std::os::fd::OwnedFd::from(writer))).unwrap();
    (worker, BufReader::new(reader).lines().map_while(Result::ok))
}

pub(crate) fn kill(pid: Pid) {
    let pid = rustix::process::Pid::from_raw(pid.as_raw()).unwrap();
    let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
    rustix::process::pidfd_send_signal(&pidfd, rustix::process::Signal::KILL).unwrap();
}

/// Starts a worker that ends only by KILL.
pub(crate) fn deaf_worker(run: &Run) -> WorkerProcess {
    let (worker, mut lines) = lines_of(run, shell("trap '' TERM; echo ready; while :; do sleep 0.1; done"));
    assert_eq!(lines.next().unwrap(), "ready");
    worker
}
