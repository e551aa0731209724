//! The loops of weakincentives, if it is there.

use std::path::Path;
use std::process::Command;

use snakepit_proving::bench::redis::Redis;
use snakepit_proving::bench::{Outcome, Samples};

use crate::post::Kind;

/// One of its loops over one of its mailboxes.
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    /// Where ours, which it is compared with, keeps its messages.
    pub(crate) kind: Kind,
    /// The least that ours is faster by, if something is wanted.
    pub(crate) times: Option<f64>,
    word: &'static str,
    pub(crate) rates: Samples,
    /// Why it is not measured.
    pub(crate) absent: Option<String>,
}

impl Peer {
    pub(crate) fn all() -> [Self; 4] {
        let peer = |name, kind, word, times| Self {
            name,
            kind,
            times,
            word,
            rates: Samples::default(),
            absent: None,
        };
        [
            peer("weakincentives' AgentLoop, in memory", Kind::Memory, "agent", Some(20.0)),
            peer("weakincentives' bare MailboxWorker, in memory", Kind::Memory, "worker", None),
            peer(
                "weakincentives' AgentLoop over Redis (appendfsync always)",
                Kind::Sqlite,
                "agent",
                Some(20.0),
            ),
            peer("weakincentives' bare MailboxWorker over Redis", Kind::Sqlite, "worker", None),
        ]
    }

    /// Measures it once more.
    pub(crate) fn turn(&mut self, messages: usize) -> Outcome<()> {
        match measure(self.kind, self.word, messages)? {
            Ok(rate) => self.rates.push(rate),
            Err(why) => self.absent = Some(why),
        }
        Ok(())
    }
}

/// Messages per second, or why they are not measured.
fn measure(kind: Kind, word: &str, messages: usize) -> Outcome<Result<f64, String>> {
    let Some(python) = std::env::var_os("SNAKEPIT_BENCH_WEAKINCENTIVES") else {
        return Ok(Err("weakincentives is not installed".to_owned()));
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bin/bench_loops/peer.py");
    let mut command = Command::new(python);
    command.arg(script).arg(word).arg(messages.to_string());
    let dir = tempfile::tempdir()?;
    let mut _server = None;
    if kind == Kind::Sqlite {
        match Redis::start(dir.path()) {
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
