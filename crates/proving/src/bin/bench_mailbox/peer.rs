//! The Redis mailbox of weakincentives, if it is there.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use snakepit_proving::bench::Outcome;

const PROGRAM: &str = "\
import sys, time, redis
from weakincentives.contrib.mailbox import RedisMailbox
box = RedisMailbox(name='bench', client=redis.Redis(unix_socket_path=sys.argv[1]), body_type=str)
count = int(sys.argv[2])
box.send('x' * 100)
began = time.perf_counter()
for _ in range(count):
    box.send('x' * 100)
print(count / (time.perf_counter() - began))
box.close()
";

/// A server that ends with its owner.
struct Redis(Child);

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends per second, or why they are not measured.
pub(crate) fn sends(dir: &Path, messages: usize) -> Outcome<Result<f64, String>> {
    let Some(python) = std::env::var_os("SNAKEPIT_BENCH_WEAKINCENTIVES") else {
        return Ok(Err("weakincentives is not installed".to_owned()));
    };
    let socket = dir.join("redis.sock");
    let server = Command::new("redis-server")
        .args(["--port", "0", "--save", "", "--appendonly", "yes", "--appendfsync", "always"])
        .arg("--unixsocket")
        .arg(&socket)
        .arg("--dir")
        .arg(dir)
        .stdout(Stdio::null())
        .spawn();
    let _server = match server {
        Ok(server) => Redis(server),
        Err(error) => return Ok(Err(format!("redis-server: {error}"))),
    };
    let deadline = Instant::now() + Duration::from_secs(10);
    while std::os::unix::net::UnixStream::connect(&socket).is_err() {
        if Instant::now() > deadline {
            return Err("redis-server does not listen".into());
        }
        std::thread::yield_now();
    }
    let output =
        Command::new(python).args(["-c", PROGRAM]).arg(&socket).arg(messages.to_string()).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    Ok(Ok(String::from_utf8_lossy(&output.stdout).trim().parse()?))
}
