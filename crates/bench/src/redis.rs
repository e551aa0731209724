//! A Redis server that a benchmark starts for itself.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::BenchResult;

/// A server on a Unix socket that syncs each write, as SQLite does, and ends with its owner.
#[derive(Debug)]
pub struct RedisServer {
    server: Child,
    socket: PathBuf,
}

impl RedisServer {
    /// Starts a server that keeps its file in `dir`, and waits until it listens.
    pub fn start(dir: &Path) -> BenchResult<Self> {
        let socket = dir.join("redis.sock");
        let server = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "yes", "--appendfsync", "always"])
            .arg("--unixsocket")
            .arg(&socket)
            .arg("--dir")
            .arg(dir)
            .stdout(Stdio::null())
            .spawn()?;
        let redis = Self { server, socket };
        let deadline = Instant::now() + Duration::from_secs(10);
        while UnixStream::connect(&redis.socket).is_err() {
            if Instant::now() > deadline {
                return Err("it does not listen".into());
            }
            std::thread::yield_now();
        }
        Ok(redis)
    }

    /// Returns the socket on which the server listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
