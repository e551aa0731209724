//! The loops of weakincentives, if it is installed.

use std::path::Path;
use std::process::Command;

use snakepit_bench::redis::RedisServer;
use snakepit_bench::{BenchResult, SampleSet};

use crate::mailboxes::Backend;

/// A loop of the peer over one of its mailboxes.
pub(crate) struct PeerLoop {
    pub(crate) name: &'static str,
    /// The mailbox of our loop that the peer is compared with.
    pub(crate) backend: Backend,
    /// How many times faster our loop must be, if there is a target.
    pub(crate) times: Option<f64>,
    word: &'static str,
    pub(crate) rates: SampleSet,
    /// The reason why the peer is not measured.
    pub(crate) absent: Option<String>,
}

impl PeerLoop {
    pub(crate) fn all() -> [Self; 4] {
        let peer = |name, backend, word, times| Self {
            name,
            backend,
            times,
            word,
            rates: SampleSet::default(),
            absent: None,
        };
        [
            peer("weakincentives' AgentLoop, in memory", Backend::Memory, "agent", Some(20.0)),
            peer("weakincentives' bare MailboxWorker, in memory", Backend::Memory, "worker", None),
            peer(
                "weakincentives' AgentLoop over Redis (appendfsync always)",
                Backend::Sqlite,
                "agent",
                Some(20.0),
            ),
            peer("weakincentives' bare MailboxWorker over Redis", Backend::Sqlite, "worker", None),
        ]
    }

    /// Measures one more round.
    pub(crate) fn turn(&mut self, messages: usize) -> BenchResult<()> {
        match measure(self.backend, self.word, messages)? {
            Ok(rate) => self.rates.push(rate),
            Err(why) => self.absent = Some(why),
        }
        Ok(())
    }
}

/// Returns messages per second, or the reason why they are not measured.
fn measure(backend: Backend, word: &str, messages: usize) -> BenchResult<Result<f64, String>> {
    let Some(python) = std::env::var_os("SNAKEPIT_BENCH_WEAKINCENTIVES") else {
        return Ok(Err("weakincentives is not installed".to_owned()));
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bin/loops/peer.py");
    let mut command = Command::new(python);
    command.arg(script).arg(word).arg(messages.to_string());
    let dir = tempfile::tempdir()?;
    let mut _server = None;
    if backend == Backend::Sqlite {
        match RedisServer::start(dir.path()) {
            Ok(redis) => {
                command.arg(redis.socket());
                _server = Some(redis);
            }
            Err(why) => return Ok(Err(format!("redis-server: {why}"))),
        }
    }
    let output = command.output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    Ok(Ok(String::from_utf8_lossy(&output.stdout).trim().parse()?))
}
